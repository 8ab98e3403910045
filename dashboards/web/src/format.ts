// Numbers as people read them: short, always with their unit, by the rules of the command line (server/cli/output.cc), so that
// the same thing is the same text in both. What is absent is a dash, never a zero.

import type { ServerInfo } from './types';

const DASH = '–';

// `value` in the largest of `units` (each `base` times the one before) that leaves at least 1; three digits.
function scaled(value: number, base: number, units: string[]): string {
  let unit = 0;
  while (Math.abs(value) >= base && unit + 1 < units.length) {
    value /= base;
    ++unit;
  }
  const size = Math.abs(value);
  const digits = unit === 0 && Number.isInteger(value) ? 0 : size < 10 ? 2 : size < 100 ? 1 : 0;
  return value.toFixed(digits) + units[unit];
}

function absent(value: number | null | undefined): value is null | undefined {
  return value === null || value === undefined || !Number.isFinite(value);
}

export function count(value: number | null | undefined): string {
  return absent(value) ? DASH : Math.round(value).toLocaleString('en-US');
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

// Binary units, as memory has them: "145 MiB", "1.50 GiB".
export function bytes(value: number | null | undefined): string {
  return absent(value) ? DASH : scaled(value, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']);
}

// "1.28 K", "8.03 B".
export function large(value: number | null | undefined): string {
  return absent(value) ? DASH : scaled(value, 1000, ['', ' K', ' M', ' B', ' T']);
}

// "11.3 GB/s", "989 TFLOP/s".
export function rate(value: number | null | undefined, unit: string): string {
  return absent(value) ? DASH : scaled(value, 1000, ['', 'K', 'M', 'G', 'T', 'P'].map((prefix) => ` ${prefix}${unit}`));
}

export function percent(value: number | null | undefined): string {
  return absent(value) ? DASH : `${(100 * value).toFixed(1)} %`;
}

export function signedPercent(value: number | null | undefined): string {
  if (absent(value)) return DASH;
  return (value > 0 ? '+' : value < 0 ? '−' : '±') + percent(Math.abs(value));
}

// How much longer than the best one: "+13.0 %", from twice as long on "2.4 ×"; what rounds to nothing is a dash.
export function slower(value: number, best: number): string {
  const ratio = value / best;
  if (!Number.isFinite(ratio) || ratio < 1.0005) return DASH;
  return ratio < 2 ? signedPercent(ratio - 1) : `${ratio.toFixed(ratio < 10 ? 1 : 0)} ×`;
}

export function loss(value: number | null | undefined): string {
  return absent(value) ? DASH : value.toFixed(4);
}

// What one thing took: "473 ms", "3.200 s".
export function seconds(value: number | null | undefined): string {
  if (absent(value)) return DASH;
  if (value >= 1) return `${value.toFixed(value < 10 ? 3 : value < 100 ? 2 : 1)} s`;
  return scaled(value * 1e6, 1000, [' us', ' ms', ' s']);
}

// At an axis: without zeros that say nothing.
export function tick(text: string): string {
  const short = text.replace(/(\.\d*?)0+(?!\d)/, '$1').replace(/\.(?!\d)/, '');
  return /^0\D*$/.test(short) ? '0' : short;
}

// Two units at most, or fewer: "45 s", "3 min 20 s", "2 h 5 min", "4 d 3 h".
export function duration(value: number | null | undefined, units = 2): string {
  if (absent(value)) return DASH;
  const total = Math.max(0, Math.round(value));
  const parts: [number, string][] = [
    [Math.floor(total / 86400), 'd'], [Math.floor(total / 3600) % 24, 'h'], [Math.floor(total / 60) % 60, 'min'],
    [total % 60, 's']
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return '0 s';
  return parts.slice(first, first + units).filter(([n]) => n > 0).map(([n, unit]) => `${n} ${unit}`).join(' ');
}

// One unit: "12 s", "5 min", "3 h", "2 d".
export function age(fromUs: number | null | undefined, nowMs: number): string {
  if (absent(fromUs) || fromUs <= 0) return DASH;
  const total = Math.max(0, nowMs / 1000 - fromUs / 1e6);
  if (total < 1) return 'now';
  if (total < 60) return `${Math.floor(total)} s`;
  if (total < 3600) return `${Math.floor(total / 60)} min`;
  if (total < 86400) return `${Math.floor(total / 3600)} h`;
  return `${Math.floor(total / 86400)} d`;
}

export function ago(fromUs: number | null | undefined, nowMs: number): string {
  const text = age(fromUs, nowMs);
  return text === DASH || text === 'now' ? text : `${text} ago`;
}

// For titles: the time to the second in the reader's own zone.
export function absolute(us: number | null | undefined): string {
  if (absent(us) || us <= 0) return '';
  return new Date(us / 1000).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
}

export function clock(us: number): string {
  return new Date(us / 1000).toLocaleTimeString('en-GB', { hour12: false });
}

// "rank 2", "ranks 2, 5–7, 9"; empty where there are none.
export function ranks(list: number[]): string {
  return list.length === 0 ? '' : `${new Set(list).size === 1 ? 'rank' : 'ranks'} ${runs(list)}`;
}

function runs(list: number[]): string {
  const sorted = [...new Set(list)].sort((a, b) => a - b);
  const found: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) ++end;
    found.push(end > i + 1 ? `${sorted[i]}–${sorted[end]}` : sorted.slice(i, end + 1).join(', '));
    i = end + 1;
  }
  return found.join(', ');
}

// "sharded_parameter" -> "sharded parameter".
export function words(key: string): string {
  return key.replace(/_/g, ' ');
}

export function lastSegment(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1);
}

// Which of several servers leads, as the one says that was asked; empty where there is one alone.
export function leader(info: ServerInfo): string {
  if (info.leads) return info.leader ? 'leads' : '';
  if (!info.leader) return 'no server leads';
  return `${info.leader.address || info.leader.holder} leads`;
}
