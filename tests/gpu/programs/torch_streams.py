"""Copies from pinned memory on side streams, beside work on the main one."""
import torch

torch.manual_seed(0)
streams = [torch.cuda.Stream() for _ in range(3)]
blocks = [torch.randn(1 << 16).pin_memory() for _ in range(6)]
sums = []
for number, block in enumerate(blocks):
    with torch.cuda.stream(streams[number % 3]):
        on_device = block.to("cuda", non_blocking=True)
        sums.append((on_device * (number + 1)).sum())
for stream in streams:
    torch.cuda.current_stream().wait_stream(stream)
print([round(value.item(), 3) for value in sums])
