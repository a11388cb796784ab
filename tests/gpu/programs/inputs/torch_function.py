"""A network of two layers, from a file of inputs to a file of outputs: python3 ... INPUT OUTPUT."""

import sys

import numpy
import torch

torch.manual_seed(7)
network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
torch.cuda.nvtx.range_push("input")
batch = torch.from_numpy(numpy.load(sys.argv[1])).cuda()
torch.cuda.nvtx.range_pop()
with torch.no_grad():
    answer = network(batch)
torch.cuda.nvtx.range_push("output")
rows = answer.cpu()
torch.cuda.nvtx.range_pop()
numpy.save(sys.argv[2], rows.numpy())
