"""Training steps of a network of 20 small layers; prints the nanoseconds of the loop. Two calls of
cuCtxGetApiVersion mark the loop for the replay."""
import ctypes
import sys
import time

import torch

steps = int(sys.argv[1])
torch.manual_seed(0)
layers = [module for _ in range(20) for module in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).cuda()
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = torch.randn(32, 64).cuda(), torch.randn(32, 64).cuda()


def step():
    optimiser.zero_grad()
    loss = ((model(inputs) - targets) ** 2).mean()
    loss.backward()
    optimiser.step()


def mark():
    driver, context, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint()
    assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
    assert driver.cuCtxGetApiVersion(context, ctypes.byref(version)) == 0


for _ in range(10):
    step()
torch.cuda.synchronize()
mark()
start = time.perf_counter_ns()
for _ in range(steps):
    step()
torch.cuda.synchronize()
end = time.perf_counter_ns()
mark()
print(end - start)
