"""A step of PyTorch, between whose kernels device memory is freed twice."""
import ctypes
import torch

cuda = ctypes.CDLL("libcuda.so.1")


def step(model, batch):
    loss = model(batch).square().mean()
    loss.backward()
    address = ctypes.c_uint64()
    cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096))
    cuda.cuMemFree_v2(address)
    return cuda.cuMemFree_v2(address)  # misuse


model = torch.nn.Linear(64, 64).cuda()
for _ in range(3):
    step(model, torch.randn(8, 64, device="cuda"))
torch.cuda.synchronize()
