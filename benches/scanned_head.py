"""Would a head that is read at 4 bits first, and again where that could matter, pay? Counts what would be read again.

    python benches/scanned_head.py MODEL.gguf STATES.json          (packages gguf and numpy)

STATES.json is what the head gets at the ends of some texts, from a built package:

    const model = await load("MODEL.gguf");
    writeFileSync("STATES.json", JSON.stringify((await model.embed(texts, { pooling: "last" })).map((row) => [...row])));
"""

import json
import sys

import gguf
import numpy as np

tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(sys.argv[1]).tensors}
head = tensors.get("output.weight", tensors["token_embd.weight"])
weights = gguf.quants.dequantize(head.data, head.tensor_type).astype(np.float32)
states = np.array(json.load(open(sys.argv[2])), dtype=np.float32)
ids, hidden = weights.shape

# Six bits with a scale for 16 values, as Q6_K has them; the scan reads the higher four.
GROUP = 16
groups = weights.reshape(ids, -1, GROUP)
scale = np.maximum(np.abs(groups).max(2, keepdims=True) / 31, 1e-30)
codes = np.clip(np.rint(groups / scale), -32, 31).astype(np.int32) + 32
exact = ((codes - 32) * scale).reshape(weights.shape)
left = ((codes & 3) - 1.5) * scale
score = (exact - left.reshape(weights.shape)) @ states.T
error = np.sqrt(((exact @ states.T - score) ** 2).mean())

parts = states.reshape(len(states), -1, GROUP)
bounds = {
    "1.5 steps × Σ|x| of each group": 1.5 * scale[:, :, 0] @ np.abs(parts).sum(2).T,
    "|rest| · |x| of each group": np.sqrt((left**2).sum(2)) @ np.sqrt((parts**2).sum(2)).T,
    "|rest| · |x| of the row": np.outer(np.sqrt((left**2).sum((1, 2))), np.sqrt((states**2).sum(1))),
}
for name, bound in bounds.items():
    again = {k: score + bound >= np.sort(score - bound, axis=0)[-k] for k in (1, 40)}
    tiles = np.add.reduceat(again[1], np.arange(0, ids, 32), axis=0) > 0
    print(
        f"{name}: {np.sqrt((bound**2).mean()) / error:.1f} × the error; again, of {ids} ids:",
        f"{np.median(again[1].sum(0)):.0f} for the best, {np.median(again[40].sum(0)):.0f} for the best 40;",
        f"tiles of 32 with one of the former: {100 * np.median(tiles.mean(0)):.0f} %",
    )
