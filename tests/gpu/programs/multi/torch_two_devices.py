"""A model in two halves on two devices: tensors go from one to the other forwards, their gradients backwards."""
import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True, warn_only=True)
first = torch.nn.Linear(256, 512).to("cuda:0")
second = torch.nn.Linear(512, 8).to("cuda:1")
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
inputs = torch.randn(64, 256)
targets = torch.randn(64, 8)
for step in range(4):
    optimizer.zero_grad()
    hidden = torch.relu(first(inputs.to("cuda:0")))
    outputs = second(hidden.to("cuda:1"))
    loss = torch.nn.functional.mse_loss(outputs, targets.to("cuda:1"))
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.6f}")
block = torch.arange(1 << 18, device="cuda:0", dtype=torch.int64)
there = block.to("cuda:1") * 3
back = there.to("cuda:0", non_blocking=True) + block
torch.cuda.synchronize(0)
torch.cuda.synchronize(1)
print(f"there {there.sum().item()}, back {back.sum().item()}")
