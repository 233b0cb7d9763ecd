/** The logarithm of the sum of exponentials, which turns a logit into the logarithm of a probability. */
export function logSum(logits: Float32Array): number {
  let most = -Infinity;
  for (const logit of logits) if (logit > most) most = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - most);
  return most + Math.log(sum);
}
