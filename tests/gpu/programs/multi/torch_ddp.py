"""Training on several devices with DistributedDataParallel over NCCL: gradients by all-reduce, the
model by broadcast, the losses by all-gather."""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.use_deterministic_algorithms(True)

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(rank)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).to(device)
model = DistributedDataParallel(model, device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
said = []
for step in range(4):
    inputs = torch.randn(64, 256, device=device)
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses = [torch.empty_like(loss) for _ in range(world)]
    dist.all_gather(losses, loss.detach())
    said.append(f"rank {rank} step {step}: losses " + " ".join(f"{each.item():.6f}" for each in losses))
weights = torch.stack([parameter.double().sum() for parameter in model.parameters()]).sum()
said.append(f"rank {rank}: weights {weights.item():.9f}")
dist.barrier()
dist.destroy_process_group()
# In one piece: the other process writes to the same pipe.
os.write(1, ("\n".join(said) + "\n").encode())
