"""A small language model: embeddings, causal attention, a step of training, then sampling from it."""
import torch

torch.manual_seed(0)
width, heads, words, length = 64, 4, 100, 32


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.mix, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.think = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        count, size, _ = x.shape
        q, k, v = (part.view(count, size, heads, -1).transpose(1, 2) for part in self.mix(self.before(x)).chunk(3, dim=2))
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(count, size, width))
        return x + self.think(self.after(x))


model = torch.nn.Sequential(torch.nn.Embedding(words, width), Block(), Block(), torch.nn.Linear(width, words)).cuda()
steps = torch.optim.AdamW(model.parameters(), lr=1e-3)
text = torch.randint(words, (4, length + 1)).cuda()
for _ in range(3):
    loss = torch.nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    steps.zero_grad()
    loss.backward()
    steps.step()
    print(loss.item())
with torch.no_grad():
    said = text[:1, :4]
    for _ in range(8):
        chances = model(said)[:, -1].softmax(dim=1)
        said = torch.cat([said, torch.multinomial(chances, 1)], dim=1)
    print(said.tolist())
