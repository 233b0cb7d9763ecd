/**
 * PostgreSQL keeps leases as the workers' clocks tell them. A worker whose clock jumps ahead and that dies then would hold its chunks until
 * that time comes. What ends later than any lease can, by the broker's own clock, ends a lease from now.
 */

import { Pool } from "pg";

/** A lease that is renewed ends this many leases from now at most, however far clocks are apart within reason. */
const MOST = 4;

/** The table and its columns are those of the version of BullMQ in package.json. */
const SHORTEN = `UPDATE bullmq.job
  SET locked_until_ms = $2 + (1000 * extract(epoch FROM clock_timestamp()))::bigint
  WHERE queue = $1 AND state = 'active' AND locked_until_ms > $3 + 1000 * extract(epoch FROM clock_timestamp())`;

/** Looks once a lease, until it is closed. */
export function shortenLeases(url: string, queue: string, ms: number, onError: (error: Error) => void) {
  const pool = new Pool({ connectionString: url, max: 1 });
  // A connection that breaks while nothing uses it is made anew by the next look.
  pool.on("error", () => {});
  const look = () => pool.query(SHORTEN, [queue, ms, MOST * ms]).catch(onError);
  const timer = setInterval(look, ms);
  timer.unref();
  return {
    async close(): Promise<void> {
      clearInterval(timer);
      await pool.end();
    },
  };
}
