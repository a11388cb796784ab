# A small training with a fixed seed. `never`: all steps alike. `cycles`: blocks of steps of which
# every second one is recorded, between blocks in which none is. The last line says what came out.
import ctypes
import json
import statistics
import sys
import time

import torch

BLOCK = 100
# A few steps before anything is timed: libraries load their kernels.
WARM = 50


def recorder(name):
    for library in ("libcuda.so.1", None):
        try:
            return getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError):
            pass
    return lambda: 0


def main():
    how, cycles = sys.argv[1], int(sys.argv[2])
    start, stop = recorder("cutape_start"), recorder("cutape_stop")
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, wanted = torch.randn(64, 64).cuda(), torch.randn(64, 8).cuda()
    losses = []

    def step():
        begin = time.perf_counter_ns()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return time.perf_counter_ns() - begin

    for _ in range(WARM):
        step()
    between, never, recorded, changed = [], [], [], 0
    done = 0
    while done < cycles:
        for _ in range(min(BLOCK, cycles - done)):
            if how == "cycles":
                changed += start()
            took = step()
            if how == "cycles":
                changed += stop()
                recorded.append(took)
            between.append(step())
            done += 1
        for _ in range(BLOCK // 4):
            step()
            never.append(step())
    torch.cuda.synchronize()
    middle = lambda times: statistics.median(times) / 1000 if times else 0
    print(json.dumps({
        "losses": [loss.hex() for loss in losses],
        "cycles": done,
        "changed": changed,
        "recorded us": middle(recorded),
        "between us": middle(between),
        "never us": middle(never),
    }))


main()
