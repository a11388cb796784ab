"""Causal attention in half precision, forward and backward."""
import torch

torch.manual_seed(0)
query, key, value = (torch.rand(4, 16, 1024, 64, device="cuda", dtype=torch.half, requires_grad=True) for _ in range(3))
for _ in range(2):
    with torch.cuda.nvtx.range("step"):
        seen = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        seen.backward(value)
print(seen.float().sum().item())
