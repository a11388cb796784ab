"""An all-reduce between two processes over NCCL, which shares memory between them."""
import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
values = torch.arange(1 << 16, device=device, dtype=torch.float32) * (rank + 1)
dist.all_reduce(values)
torch.cuda.synchronize()
print(f"rank {rank}: sum {values.double().sum().item():.0f}", flush=True)
dist.barrier()
dist.destroy_process_group()
