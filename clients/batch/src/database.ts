/** Jobs in PostgreSQL: lines and answers are rows, of a chunk each. A row of answers is never replaced: who finishes late changes nothing. */

import { Pool, type PoolClient, type QueryResult } from "pg";
import { type Answered, EngineError, type Line } from "ternlight/batch";
import { ALIVE_MS, LEFT_MS } from "./attached.ts";
import { answersOf, answersText, linesOf } from "./records.ts";
import {
  type Admit,
  type Attached,
  type ChunkRef,
  type Chunks,
  isJobId,
  type Job,
  type JobInfo,
  type JobSettings,
  noJob,
  type Store,
  sizeOf,
} from "./store.ts";
import { shownUrl } from "./url.ts";

/** Texts are bytes: a text of PostgreSQL holds no NUL. A job's row comes last, so that deleting it takes all of it away. */
const TABLES = `
  CREATE SCHEMA IF NOT EXISTS ternlight;
  CREATE SEQUENCE IF NOT EXISTS ternlight.job_key;
  CREATE TABLE IF NOT EXISTS ternlight.job (
    key bigint PRIMARY KEY, id text NOT NULL UNIQUE, info jsonb NOT NULL, cancelled boolean NOT NULL DEFAULT false);
  CREATE TABLE IF NOT EXISTS ternlight.lines (
    job bigint REFERENCES ternlight.job ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    chunk integer, lines bytea NOT NULL, PRIMARY KEY (job, chunk));
  CREATE TABLE IF NOT EXISTS ternlight.split (
    job bigint REFERENCES ternlight.job ON DELETE CASCADE, chunk integer, PRIMARY KEY (job, chunk));
  CREATE TABLE IF NOT EXISTS ternlight.answers (
    job bigint REFERENCES ternlight.job ON DELETE CASCADE,
    chunk integer, line integer, answers bytea NOT NULL, PRIMARY KEY (job, chunk, line));
  CREATE TABLE IF NOT EXISTS ternlight.begun (
    job bigint REFERENCES ternlight.job ON DELETE CASCADE,
    chunk integer, line integer, worker text, PRIMARY KEY (job, chunk, line, worker));
  CREATE TABLE IF NOT EXISTS ternlight.worker (
    id text PRIMARY KEY, info jsonb NOT NULL, seen timestamptz NOT NULL);`;
/** Of the lock under which tables are made. */
const LOCK = 0x7e41167;
/** The line of answers to a whole chunk. */
const WHOLE = -1;
/** Chunks and bytes that are written at once. */
const [ROWS, BYTES] = [256, 2 ** 20];
const CONNECTIONS = 4;
/** Milliseconds for which a database that is away is asked again, and between two times. */
const [PATIENCE_MS, AGAIN_MS] = [20_000, 500];

/** SQLSTATE's classes of connections that break, of servers that start, stop or are full; and the system's own codes. */
const isAway = ({ code, message }: { code?: string; message: string }): boolean =>
  /^(08...|57P0[123]|53300|ECONN\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN)$/.test(code ?? "") ||
  /connection (terminated|timeout)|timeout exceeded/i.test(message);

export class Database implements Store {
  readonly place: string;
  readonly #pool: Pool;

  private constructor(url: string) {
    this.place = shownUrl(url);
    this.#pool = new Pool({ connectionString: url, max: CONNECTIONS, connectionTimeoutMillis: 5000 });
    // A connection that breaks while nothing uses it is made anew by the next query.
    this.#pool.on("error", () => {});
  }

  static async open(url: string): Promise<Database> {
    const made = new Database(url);
    try {
      await made.transaction(async (client) => {
        await client.query("SELECT pg_advisory_xact_lock($1)", [LOCK]);
        await client.query(TABLES);
      });
      return made;
    } catch (error) {
      await made.close();
      throw error;
    }
  }

  /** Its tables are made when it is opened. */
  async check(): Promise<void> {
    await this.rows("SELECT 1 FROM ternlight.job LIMIT 1");
  }

  /** Rows of one statement, which may be repeated: while the database is away it is. */
  async rows(text: string, values: unknown[] = []): Promise<QueryResult["rows"]> {
    const begun = performance.now();
    for (;;) {
      try {
        return (await this.#pool.query(text, values)).rows;
      } catch (error) {
        const late = performance.now() - begun > PATIENCE_MS;
        if (late || !isAway(error as Error)) throw this.#failed(error as Error);
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  }

  async transaction<T>(use: (client: PoolClient) => Promise<T>): Promise<T> {
    let client: PoolClient | undefined;
    let failure: Error | undefined;
    try {
      client = await this.#pool.connect().catch((error) => {
        throw this.#failed(error);
      });
      await client.query("BEGIN");
      const found = await use(client);
      await client.query("COMMIT");
      return found;
    } catch (error) {
      failure = error as Error;
      // What the lines' reader throws stays what it is.
      const own = !(failure instanceof EngineError) && ("severity" in failure || isAway(failure));
      throw own ? this.#failed(failure) : failure;
    } finally {
      // What failed in the middle is ended by its connection.
      client?.release(failure);
    }
  }

  submit(chunks: Chunks, settings: JobSettings, admit?: Admit): Promise<JobInfo> {
    return this.transaction(async (client) => {
      const { rows } = await client.query("SELECT nextval('ternlight.job_key') AS key");
      const { key } = rows[0];
      await write(client, key, chunks);
      const info = chunks.info(settings);
      await admit?.(info);
      const insert = "INSERT INTO ternlight.job (key, id, info) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
      const { rowCount } = await client.query(insert, [key, info.id, info]);
      if (rowCount === 1) return info;
      // It is there: what was written for it again goes away.
      await client.query("ROLLBACK");
      const found = await client.query("SELECT info FROM ternlight.job WHERE id = $1", [info.id]);
      return found.rows[0].info;
    });
  }

  async open(id: string): Promise<JobRows> {
    if (!isJobId(id)) throw noJob(String(id), this.place, "it is no job's id");
    const [row] = await this.rows("SELECT key, info FROM ternlight.job WHERE id = $1", [id]);
    if (!row) throw noJob(id, this.place, "it was not submitted here, or was deleted");
    return new JobRows(this, row.key, row.info);
  }

  async all(): Promise<JobRows[]> {
    const rows = await this.rows("SELECT key, info FROM ternlight.job ORDER BY id");
    return rows.map(({ key, info }) => new JobRows(this, key, info));
  }

  async beat(worker: string, attached: Attached): Promise<void> {
    const insert = `INSERT INTO ternlight.worker VALUES ($1, $2, clock_timestamp())
      ON CONFLICT (id) DO UPDATE SET info = $2, seen = clock_timestamp()`;
    await this.#pool.query(insert, [worker, attached]);
    const left = "DELETE FROM ternlight.worker WHERE seen < clock_timestamp() - $1 * interval '1 millisecond'";
    await this.#pool.query(left, [LEFT_MS]);
  }

  async leave(worker: string): Promise<void> {
    await this.#pool.query("DELETE FROM ternlight.worker WHERE id = $1", [worker]);
  }

  async alive(workers: readonly string[], ms: number): Promise<string[]> {
    const alive = `SELECT id FROM ternlight.worker
      WHERE id = ANY($1) AND seen > clock_timestamp() - $2 * interval '1 millisecond'`;
    return (await this.rows(alive, [workers, ms])).map(({ id }) => id);
  }

  async attached(): Promise<Attached[]> {
    const alive = "SELECT info FROM ternlight.worker WHERE seen > clock_timestamp() - $1 * interval '1 millisecond'";
    return (await this.rows(alive, [ALIVE_MS])).map(({ info }) => info);
  }

  close(): Promise<void> {
    return this.#pool.end();
  }

  #failed(cause: Error): EngineError {
    return new EngineError("Network", `${this.place}: ${cause.message}`, { option: "queue" }, { cause });
  }
}

async function write(client: PoolClient, key: string, chunks: Chunks): Promise<void> {
  const insert = "INSERT INTO ternlight.lines SELECT $1, * FROM unnest($2::int[], $3::bytea[])";
  let [numbers, texts, size]: [number[], Buffer[], number] = [[], [], 0];
  const flush = async () => {
    await client.query(insert, [key, numbers, texts]);
    [numbers, texts, size] = [[], [], 0];
  };
  let chunk = 0;
  for await (const bytes of chunks) {
    numbers.push(chunk++);
    texts.push(bytes);
    size += bytes.length;
    if (numbers.length === ROWS || size >= BYTES) await flush();
  }
  if (numbers.length > 0) await flush();
}

class JobRows implements Job {
  readonly info: JobInfo;
  readonly place: string;
  readonly #database: Database;
  readonly #key: string;

  constructor(database: Database, key: string, info: JobInfo) {
    this.info = info;
    this.place = `${database.place}, job ${info.id}`;
    this.#database = database;
    this.#key = key;
  }

  async lines(chunk: number): Promise<Line[]> {
    const [row] = await this.#rows("SELECT lines FROM ternlight.lines WHERE job = $1 AND chunk = $2", chunk);
    if (!row) throw new EngineError("Truncated", `${this.place}: the lines of chunk ${chunk} are missing`);
    return linesOf(row.lines, chunk * this.info.chunk);
  }

  async has(chunk: number, line: number = WHOLE): Promise<boolean> {
    const select = "SELECT 1 FROM ternlight.answers WHERE job = $1 AND chunk = $2 AND line = $3";
    return (await this.#rows(select, chunk, line)).length > 0;
  }

  async answers(chunk: number): Promise<Answered[] | null> {
    const select = "SELECT line, answers FROM ternlight.answers WHERE job = $1 AND chunk = $2 ORDER BY line";
    const rows = await this.#rows(select, chunk);
    if (rows[0]?.line === WHOLE) return answersOf(rows[0].answers);
    return rows.length === sizeOf(this.info, chunk) ? rows.flatMap(({ answers }) => answersOf(answers)) : null;
  }

  async keep(answers: readonly Answered[], chunk: number, line: number = WHOLE): Promise<void> {
    const insert = "INSERT INTO ternlight.answers VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    await this.#rows(insert, chunk, line, Buffer.from(answersText(answers)));
  }

  async split(chunk: number): Promise<void> {
    await this.#rows("INSERT INTO ternlight.split VALUES ($1, $2) ON CONFLICT DO NOTHING", chunk);
  }

  async isSplit(chunk: number): Promise<boolean> {
    return (await this.#rows("SELECT 1 FROM ternlight.split WHERE job = $1 AND chunk = $2", chunk)).length > 0;
  }

  async missing(from: number, end: number): Promise<ChunkRef[]> {
    const { chunk: size, lines } = this.info;
    const rows = await this.#rows(
      `SELECT c AS chunk, l AS line
       FROM generate_series($2::int, $3::int - 1) AS c
       LEFT JOIN ternlight.split AS s ON s.job = $1 AND s.chunk = c
       LEFT JOIN generate_series(0, $4::int - 1) AS l ON s.chunk IS NOT NULL AND c::bigint * $4 + l < $5
       WHERE NOT EXISTS (SELECT 1 FROM ternlight.answers AS a
         WHERE a.job = $1 AND a.chunk = c AND (a.line = ${WHOLE} OR a.line = l))
       ORDER BY c, l`,
      from,
      end,
      size,
      lines,
    );
    return rows.map(({ chunk, line }) => (line === null ? { chunk } : { chunk, line }));
  }

  async begin(worker: string, chunk: number, line: number = WHOLE): Promise<void> {
    const insert = "INSERT INTO ternlight.begun VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    await this.#rows(insert, chunk, line, worker);
  }

  async end(worker: string, chunk: number, line: number = WHOLE): Promise<void> {
    const remove = "DELETE FROM ternlight.begun WHERE job = $1 AND chunk = $2 AND line = $3 AND worker = $4";
    await this.#rows(remove, chunk, line, worker);
  }

  async begun(chunk: number, line: number = WHOLE): Promise<string[]> {
    const select = "SELECT worker FROM ternlight.begun WHERE job = $1 AND chunk = $2 AND line = $3";
    return (await this.#rows(select, chunk, line)).map(({ worker }) => worker);
  }

  async forget(chunk: number): Promise<void> {
    await this.#rows("DELETE FROM ternlight.begun WHERE job = $1 AND chunk = $2", chunk);
    await this.#rows("DELETE FROM ternlight.split WHERE job = $1 AND chunk = $2", chunk);
    await this.#rows("DELETE FROM ternlight.answers WHERE job = $1 AND chunk = $2", chunk);
  }

  async done(): Promise<number> {
    const { chunk: size, lines } = this.info;
    const [row] = await this.#rows(
      `SELECT count(*)::int AS done FROM (
         SELECT chunk FROM ternlight.answers WHERE job = $1 GROUP BY chunk
         HAVING min(line) = ${WHOLE} OR count(*) = least($2::bigint, $3::bigint - chunk::bigint * $2)) AS whole`,
      size,
      lines,
    );
    return row.done;
  }

  async cancelled(): Promise<boolean> {
    const [row] = await this.#rows("SELECT cancelled FROM ternlight.job WHERE key = $1");
    return row?.cancelled ?? true;
  }

  async cancel(): Promise<void> {
    await this.#rows("UPDATE ternlight.job SET cancelled = true WHERE key = $1");
  }

  async resume(): Promise<void> {
    await this.#rows("UPDATE ternlight.job SET cancelled = false WHERE key = $1");
  }

  #rows(text: string, ...values: unknown[]): Promise<QueryResult["rows"]> {
    return this.#database.rows(text, [this.#key, ...values]);
  }
}
