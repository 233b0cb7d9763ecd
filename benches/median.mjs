/** The middle of some numbers; of an even count the mean of the two in the middle, so that two runs do not count as the better one. */
export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
