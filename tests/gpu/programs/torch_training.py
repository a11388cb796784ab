"""A small network trained with SGD, then with Adam."""
import torch

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
inputs, targets = torch.randn(32, 64).cuda(), torch.randn(32, 1).cuda()
for optimiser in (torch.optim.SGD, torch.optim.Adam):
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
    steps = optimiser(model.parameters(), lr=0.01)
    for _ in range(5):
        steps.zero_grad()
        loss = ((model(inputs) - targets) ** 2).mean()
        loss.backward()
        steps.step()
        print(optimiser.__name__, loss.item())
