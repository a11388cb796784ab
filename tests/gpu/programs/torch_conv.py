"""A convolution net, in half precision where that is safe, on several sizes."""
import torch

torch.manual_seed(0)
torch.backends.cudnn.deterministic = True
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1),
    torch.nn.BatchNorm2d(16),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(16, 32, 3, stride=2),
    torch.nn.GELU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(32, 10),
).cuda()
steps = torch.optim.AdamW(net.parameters())
for size in (32, 48, 32):
    images = torch.randn(8, 3, size, size).cuda()
    labels = torch.arange(8).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(net(images), labels)
    steps.zero_grad()
    loss.backward()
    steps.step()
    print(size, loss.item())
