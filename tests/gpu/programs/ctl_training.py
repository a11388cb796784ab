# A small training with a fixed seed. `never`: all steps alike. `cycles`: blocks of steps of which
# every second one is recorded, between blocks of as many in which none is. The last line says what
# came out: medians of a block's steps between recorded ones over those of the block behind it, and, for
# the noise, of one half of the latter over the other.
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
    middle = lambda times: statistics.median(times) / 1000 if times else 0
    between, never, recorded, changed = [], [], [], 0
    ratios, noise = [], []
    done = 0
    while done < cycles:
        count = min(BLOCK, cycles - done)
        for _ in range(count):
            if how == "cycles":
                changed += start()
            took = step()
            if how == "cycles":
                changed += stop()
                recorded.append(took)
            between.append(step())
        for _ in range(count):
            step()
            never.append(step())
        done += count
        own, other = between[-count:], never[-count:]
        ratios.append(middle(own) / middle(other))
        noise.append(middle(other[::2]) / middle(other[1::2]))
    torch.cuda.synchronize()
    print(json.dumps({
        "losses": [loss.hex() for loss in losses],
        "cycles": done,
        "changed": changed,
        "recorded us": middle(recorded),
        "between us": middle(between),
        "never us": middle(never),
        "ratios": ratios,
        "noise": noise,
    }))


main()
