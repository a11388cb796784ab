"""One step of training a network of two layers, after one that loads what it needs."""
import torch

torch.manual_seed(0)
inputs, targets = torch.rand(1024, 1024, device="cuda"), torch.rand(1024, 256, device="cuda")
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024, device="cuda"), torch.nn.ReLU(), torch.nn.Linear(1024, 256, device="cuda"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=False)
for _ in range(2):
    with torch.cuda.nvtx.range("step"):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
print(loss.item())
