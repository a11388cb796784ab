"""Two ranks that meet in all-reduces; one of them multiplies three times as much before each: first
rank 1, in the range `slow 1`, then rank 0, in `slow 0`."""
import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
factors = [torch.rand(4096, 4096, device=device, dtype=torch.bfloat16) for _ in range(2)]
product = torch.empty_like(factors[0])
total = torch.ones(1 << 16, device=device)
torch.mm(*factors, out=product)
dist.all_reduce(total)
torch.cuda.synchronize()
for slow in (1, 0):
    torch.cuda.nvtx.range_push(f"slow {slow}")
    for _ in range(10):
        for _ in range(30 if rank == slow else 10):
            torch.mm(*factors, out=product)
        dist.all_reduce(total)
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
print(f"rank {rank}: {total[0].item():.0f}")
dist.barrier()
dist.destroy_process_group()
