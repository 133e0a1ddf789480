// What the ring does, from the definitions alone: shares no code with the program or its page.

export const LAYOUTS = ["contiguous", "striped", "zigzag"];
const PER_RANK = 4;

// The owner of each position of a sequence of 4 tokens per rank.
export function owners(layout, p) {
  const length = PER_RANK * p;
  return Array.from({ length }, (_, position) => {
    if (layout === "contiguous") return Math.floor(position / PER_RANK);
    if (layout === "striped") return position % p;
    const chunk = Math.floor(position / (PER_RANK / 2));
    return chunk < p ? chunk : 2 * p - 1 - chunk;
  });
}

// Everything about one ring: pairs by rank and block, who attends what when, and which blocks travel.
export function ring(layout, mask, p) {
  const owner = owners(layout, p);
  const visible = (query, key) => mask === "full" || key <= query;
  const pairs = Array.from({ length: p }, () => Array(p).fill(0));
  owner.forEach((rank, query) => owner.forEach((block, key) => { pairs[rank][block] += visible(query, key) ? 1 : 0; }));
  const blockAt = (rank, step) => (rank - step + 2 * p) % p;
  // A block goes as far as the last rank that sees anything in it.
  const reach = (block) => {
    let last = 0;
    for (let hops = 1; hops < p; hops += 1) if (pairs[(block + hops) % p][block] > 0) last = hops;
    return last;
  };
  const steps = Array.from({ length: p }, (_, step) => Array.from({ length: p }, (_, rank) => {
    const block = blockAt(rank, step);
    const here = step <= reach(block);
    const attends = here && pairs[rank][block] > 0;
    return { block, here, attend: attends ? block : null, pairs: attends ? pairs[rank][block] : 0, sends: step < reach(block) };
  }));
  return { owner, visible, pairs, steps, stepOf: (rank, block) => (rank - block + p) % p };
}

// Bytes of one block: 4 tokens of K and V, 8 key heads of dimension 128, two bytes each.
export const BLOCK_BYTES = 4 * 2 * 8 * 128 * 2;
