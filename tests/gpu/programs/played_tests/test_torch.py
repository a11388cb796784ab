"""Tests of PyTorch that are recorded and played. With CHANGED=1 their driver calls differ."""

import os

import pytest

torch = pytest.importorskip("torch")
SIZE = 64 + int(os.environ.get("CHANGED", "0"))


@pytest.fixture(scope="session")
def layer():
    torch.manual_seed(1)
    return torch.nn.Linear(SIZE, 8).cuda()


def test_without_driver():
    assert torch.ones(3).sum() == 3


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_product(kind):
    values = torch.arange(SIZE * SIZE, dtype=getattr(torch, kind)).reshape(SIZE, SIZE) / 1000
    assert torch.allclose((values.cuda() @ values.cuda()).cpu(), values @ values, rtol=1e-3)


def test_forward(layer):
    out = layer(torch.ones(4, SIZE, device="cuda"))
    assert out.shape == (4, 8) and torch.isfinite(out).all().item()


def test_backward(layer):
    layer(torch.ones(4, SIZE, device="cuda")).sum().backward()
    assert (layer.bias.grad == 4).all().item()
