/**
 * BullMQ on PostgreSQL keeps leases by the clock of whoever takes, renews or looks for them, so that workers whose clocks are apart would
 * take each other's chunks, or leave those of the dead. Here all of them go by PostgreSQL's own clock, as they go by Redis's in Redis.
 */

import { createPostgresBackend } from "bullmq";

/** Where statements about leases have their time, in the version of BullMQ that package.json names. */
const TIMES = new Map([
  ["move_to_active", 3],
  ["move_to_completed_fetch", 9],
  ["move_to_failed_fetch", 10],
  ["extend_lock", 4],
  ["extend_locks", 4],
  ["move_stalled_jobs_to_wait", 2],
]);

const NOW = "SELECT (1000 * extract(epoch FROM clock_timestamp()))::bigint AS now";

/** What BullMQ's own calls go through. */
interface Statements {
  run(command: string, values: unknown[]): Promise<unknown>;
  query(text: string): Promise<{ rows: { now: unknown }[] }>;
}

export const postgresBackend: typeof createPostgresBackend = (...args) => {
  const backend = createPostgresBackend(...args);
  const statements = backend as unknown as Statements;
  const run = statements.run.bind(statements);
  statements.run = async (command, values) => {
    const at = TIMES.get(command);
    if (at === undefined) return run(command, values);
    const { rows } = await statements.query(NOW);
    return run(command, values.with(at, Number(rows[0]!.now)));
  };
  return backend;
};
