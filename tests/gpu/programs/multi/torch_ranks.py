"""Two processes as torchrun starts them, each training on its own device; gradients are averaged through the host (gloo)."""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
import torch.distributed as dist

torch.use_deterministic_algorithms(True)
said = []

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(rank)
for step in range(4):
    inputs = torch.randn(32, 64, generator=generator).to(device)
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        gradient = parameter.grad.cpu()
        dist.all_reduce(gradient)
        parameter.grad.copy_(gradient / dist.get_world_size())
    optimizer.step()
    said.append(f"rank {rank} step {step}: loss {loss.item():.6f}\n")
dist.barrier()
dist.destroy_process_group()
# In one piece: the other process writes to the same pipe.
os.write(1, "".join(said).encode())
