"""Two stages of a model on two devices: the activations of the first are sent to the second, the
gradients back, over NCCL."""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
import torch.distributed as dist

torch.use_deterministic_algorithms(True)

BATCH, WIDTH = 32, 256
rank = int(os.environ["RANK"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(rank)
stage = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()).to(device)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
said = []
for step in range(4):
    for _ in range(2):
        if rank == 0:
            activations = stage(torch.randn(BATCH, WIDTH, device=device))
            dist.send(activations.detach(), 1)
            gradient = torch.empty_like(activations)
            dist.recv(gradient, 1)
            activations.backward(gradient)
        else:
            received = torch.empty(BATCH, WIDTH, device=device)
            dist.recv(received, 0)
            received.requires_grad_()
            loss = stage(received).square().mean()
            loss.backward()
            dist.send(received.grad, 0)
            said.append(f"step {step}: loss {loss.item():.6f}")
    optimizer.step()
    optimizer.zero_grad()
weights = torch.stack([parameter.double().sum() for parameter in stage.parameters()]).sum()
said.append(f"rank {rank}: weights {weights.item():.9f}")
dist.barrier()
dist.destroy_process_group()
# In one piece: the other process writes to the same pipe.
os.write(1, ("\n".join(said) + "\n").encode())
