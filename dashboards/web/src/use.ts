// How much of a worker's machine is in use, as bars.
import * as format from './format';
import type { Worker } from './types';

export interface UseBar {
  what: string; // "Processor"
  share: number; // 0 to 1
  text: string; // "62.5 %"
  note: string; // what else there is to say
}

// By whomever, as the agent said last; none of a worker that is not connected.
export function useBars(worker: Worker): UseBar[] {
  const { use } = worker;
  if (!use || !worker.connected) return [];
  const bars: UseBar[] = [];
  if (use.processor_share !== null) {
    bars.push({ what: 'Processor', share: use.processor_share, text: format.percent(use.processor_share), note: '' });
  }
  bars.push(memoryBar('Memory', use.memory_bytes, worker.host_memory_bytes));
  for (const gpu of use.gpus) {
    const name = `GPU ${gpu.index}`;
    const note = [
      gpu.temperature_celsius !== null && `${Math.round(gpu.temperature_celsius)} °C`,
      gpu.power_watts !== null && `${Math.round(gpu.power_watts)} W`,
      (gpu.slowdowns ?? []).length > 0 && `slowed down: ${(gpu.slowdowns ?? []).join(', ')}`,
      (gpu.uncorrected_ecc_errors ?? 0) > 0 && format.plural(gpu.uncorrected_ecc_errors ?? 0, 'uncorrected ECC error'),
    ].filter(Boolean).join(', ');
    const all = (worker.slot_devices ?? []).find((device) => device.index === gpu.index)?.memory_bytes ?? 0;
    if (gpu.utilization !== null) {
      bars.push({ what: name, share: gpu.utilization, text: format.percent(gpu.utilization), note });
      bars.push(memoryBar(`${name} memory`, gpu.memory_bytes, all));
    } else {
      bars.push({ ...memoryBar(`${name} memory`, gpu.memory_bytes, all), note });
    }
  }
  return bars;
}

function memoryBar(what: string, used: number, all: number): UseBar {
  const share = all > 0 ? Math.min(1, used / all) : 0;
  return { what, share, text: all > 0 ? `${format.bytes(used)} of ${format.bytes(all)}` : format.bytes(used), note: '' };
}
