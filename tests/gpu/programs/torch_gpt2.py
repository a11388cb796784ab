"""GPT-2 (124 million parameters, random weights): steps of training in bfloat16, then sampling."""
import torch
from torch.nn import functional

torch.manual_seed(0)
WIDTH, HEADS, LAYERS, WORDS, LENGTH = 768, 12, 12, 50257, 128


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.mix, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.think = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU("tanh"), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        count, size, _ = x.shape
        parts = self.mix(self.before(x)).chunk(3, dim=2)
        q, k, v = (part.view(count, size, HEADS, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(count, size, WIDTH))
        return x + self.think(self.after(x))


class Gpt2(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Embedding(1024, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = torch.nn.LayerNorm(WIDTH)

    def forward(self, text):
        x = self.words(text) + self.places(torch.arange(text.shape[1], device=text.device))
        return self.last(self.blocks(x)) @ self.words.weight.T


with torch.device("cuda"):
    model = Gpt2()
steps = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
text = torch.randint(WORDS, (4, LENGTH + 1)).cuda()
for _ in range(5):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    loss.backward()
    steps.step()
    steps.zero_grad()
    print(f"{loss.item():.3f}")
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    said = text[:1, :4]
    for _ in range(16):
        said = torch.cat([said, model(said)[:, -1:].argmax(dim=2)], dim=1)
    print(said.tolist())
