"""Thirty steps of training, each in ranges of NVTX; the backward pass calls from a thread of its own."""
# ranges: train=1 train/step=30 train/step/forward=30 train/step/backward=30 train/step/optimizer=30
import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
inputs, targets = torch.randn(32, 64).cuda(), torch.randn(32, 1).cuda()
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss_of = torch.nn.MSELoss()
with torch.cuda.nvtx.range("train"):
    for _ in range(30):
        with torch.cuda.nvtx.range("step"):
            optimizer.zero_grad()
            with torch.cuda.nvtx.range("forward"):
                loss = loss_of(model(inputs), targets)
            with torch.cuda.nvtx.range("backward"):
                loss.backward()
            with torch.cuda.nvtx.range("optimizer"):
                optimizer.step()
torch.cuda.nvtx.mark("done")
torch.cuda.synchronize()
print(loss.item())
