// A flight record as a table by rank.
import type { FlightEntry, FlightRecord } from './types';

export interface FlightRow {
  rank: number;
  last: FlightEntry | null; // null: the rank gave no dump
  behind: number; // collectives that the furthest rank has entered in this group and this one has not
  entries: number;
  reason: string;
  culprit: boolean;
}

export function flightRows(record: FlightRecord): FlightRow[] {
  const furthest = new Map<string, number>();
  for (const dump of record.dumps) {
    for (const entry of dump.entries) {
      furthest.set(entry.process_group, Math.max(furthest.get(entry.process_group) ?? 0, entry.collective_seq_id));
    }
  }
  const culprits = new Set(record.analysis?.culprits ?? []);
  const rows: FlightRow[] = record.dumps.map((dump) => {
    const last = dump.entries.length ? dump.entries[dump.entries.length - 1] : null;
    return {
      rank: dump.rank,
      last,
      behind: last ? (furthest.get(last.process_group) ?? 0) - last.collective_seq_id : 0,
      entries: dump.entries.length,
      reason: dump.reason,
      culprit: culprits.has(dump.rank),
    };
  });
  for (const rank of record.analysis?.ranks_without_dump ?? []) {
    if (rows.some((row) => row.rank === rank)) continue;
    rows.push({ rank, last: null, behind: 0, entries: 0, reason: '', culprit: culprits.has(rank) });
  }
  return rows.sort((a, b) => a.rank - b.rank);
}
