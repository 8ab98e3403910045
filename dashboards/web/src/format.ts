// Numbers as people read them: short, always with their unit. What is absent is a dash, never a zero.

const DASH = '–';

// Three significant digits, without trailing zeros after the point.
function short(value: number): string {
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString('en-US');
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  if (size < 0.01) return Number(value.toPrecision(3)).toString();
  const text = value.toFixed(digits);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
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

// Binary units, as memory has them.
export function bytes(value: number | null | undefined): string {
  if (absent(value)) return DASH;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let scaled = value;
  let unit = 0;
  while (Math.abs(scaled) >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    ++unit;
  }
  return `${short(scaled)} ${units[unit]}`;
}

// Decimal prefixes: "12.3 k", "4 M".
function prefixed(value: number): string {
  const prefixes = ['', ' k', ' M', ' G', ' T', ' P'];
  let scaled = value;
  let prefix = 0;
  while (Math.abs(scaled) >= 1000 && prefix < prefixes.length - 1) {
    scaled /= 1000;
    ++prefix;
  }
  return short(scaled) + prefixes[prefix];
}

export function rate(value: number | null | undefined, unit: string): string {
  if (absent(value)) return DASH;
  const text = prefixed(value);
  return text.includes(' ') ? text + unit : `${text} ${unit}`;
}

export function percent(value: number | null | undefined): string {
  if (absent(value)) return DASH;
  const share = 100 * value;
  return `${Math.abs(share) >= 10 || share === 0 ? share.toFixed(0) : share.toFixed(1)} %`;
}

export function signedPercent(value: number | null | undefined): string {
  if (absent(value)) return DASH;
  return (value > 0 ? '+' : value < 0 ? '−' : '±') + percent(Math.abs(value));
}

export function loss(value: number | null | undefined): string {
  return absent(value) ? DASH : value.toFixed(3);
}

// What one thing took: "1.25 ms", "3.4 s", "2 min 5 s".
export function seconds(value: number | null | undefined): string {
  if (absent(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size < 1e-3) return `${short(value * 1e6)} µs`;
  if (size < 1) return `${short(value * 1e3)} ms`;
  if (size < 100) return `${short(value)} s`;
  return duration(value);
}

// Two units at most, or fewer: "45 s", "3 min 20 s", "2 h 5 min", "4 d 3 h".
export function duration(value: number | null | undefined, units = 2): string {
  if (absent(value)) return DASH;
  const total = Math.max(0, Math.round(value));
  const parts: [number, string][] = [[Math.floor(total / 86400), 'd'], [Math.floor(total / 3600) % 24, 'h'], [Math.floor(total / 60) % 60, 'min'], [total % 60, 's']];
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

// "2, 5-7, 9": ranks as people list them.
export function ranks(list: number[]): string {
  const sorted = [...new Set(list)].sort((a, b) => a - b);
  const runs: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) ++end;
    runs.push(end > i + 1 ? `${sorted[i]}–${sorted[end]}` : sorted.slice(i, end + 1).join(', '));
    i = end + 1;
  }
  return runs.join(', ');
}

// "sharded_parameter" -> "sharded parameter".
export function words(key: string): string {
  return key.replace(/_/g, ' ');
}

export function lastSegment(name: string): string {
  return name.slice(name.lastIndexOf('/') + 1);
}
