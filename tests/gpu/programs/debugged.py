"""A training whose rounds change a buffer in place and look at it, each in a range of NVTX.

    debugged.py ROUNDS

Prints the lines that debug.py reads; tests/gpu/debugged.c says which.
"""

import sys

import torch

WIDTH, BATCH, COUNT = 512, 64, 4096


def main(rounds):
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    buffer = torch.arange(COUNT, device="cuda", dtype=torch.float32) * 0.25
    print("WRITES write 0")
    for number in range(rounds):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        torch.cuda.nvtx.range_push("write")
        buffer.mul_(1.0009765625).add_(1)
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("look")
        host = buffer.cpu().numpy()
        torch.cuda.nvtx.range_pop()
        exact = host.astype("float64")
        numbers = [*host[:4], host.min(), host.max(), exact.mean(), exact.var()]
        text = " ".join(f"{number:.17g}" for number in numbers)
        print(f"ROUND {number} {buffer.data_ptr():#x} {COUNT} {text}")


main(int(sys.argv[1]))
