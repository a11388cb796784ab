"""A training of 100 steps with a NaN in step 61: eager, or captured in a CUDA graph.

Prints `PLANTED KERNEL LINE`, a part of the name of the kernel that writes it and its line.
"""

import inspect
import sys

import torch

STEPS, WRONG, WIDTH, BATCH = 100, 61, 1024, 64


def main(way):
    torch.manual_seed(1)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)
    inputs, wanted = (torch.randn(BATCH, WIDTH, device="cuda") for _ in range(2))
    count = torch.zeros(1, device="cuda")

    def step():
        optimizer.zero_grad()
        distance = count - WRONG
        # In that step 0 / 0, otherwise 1.
        one = distance / distance
        line = inspect.currentframe().f_lineno - 1
        loss = ((model(inputs) * one - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        count.add_(1)
        return loss, line

    # As capturing wants it: before it, on another stream.
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            loss, line = step()
    torch.cuda.current_stream().wait_stream(beside)
    count.zero_()
    optimizer.zero_grad(set_to_none=True)
    if way == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss, line = step()
        count.zero_()
    for _ in range(STEPS):
        if way == "graph":
            graph.replay()
        else:
            loss, line = step()
    torch.cuda.synchronize()
    assert torch.isnan(loss).item()
    print("PLANTED", "DivFunctor|div_true|div", line)


main(sys.argv[1])
