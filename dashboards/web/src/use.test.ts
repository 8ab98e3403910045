import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Worker } from './types';
import { useBars } from './use';

const GIB = 2 ** 30;
const worker = (fields: object) => ({ connected: true, host_memory_bytes: 64 * GIB, ...fields }) as Worker;
const use = (fields: object) => ({ time_us: 1, processor_share: null, memory_bytes: 16 * GIB, gpus: [], ...fields });

test('processor and memory are shares of the machine', () => {
  assert.deepEqual(useBars(worker({ use: use({ processor_share: 0.625 }) })), [
    { what: 'Processor', share: 0.625, text: '62.5 %', note: '' },
    { what: 'Memory', share: 0.25, text: '16.0 GiB of 64.0 GiB', note: '' },
  ]);
});

test('what is not known is not drawn', () => {
  assert.deepEqual(useBars(worker({})), []);
  assert.deepEqual(useBars(worker({ use: null })), []);
  assert.deepEqual(useBars(worker({ use: use({ processor_share: 0.5 }), connected: false })), [], 'it was long ago');
  assert.deepEqual(useBars(worker({ use: use({}) })).map((bar) => bar.what), ['Memory']);
  assert.equal(useBars(worker({ use: use({}), host_memory_bytes: 0 }))[0].share, 0);
});

test('each GPU has its bars, with what the card tells', () => {
  const gpu = (fields: object) => ({
    index: 3, utilization: 0.97, memory_bytes: 20 * GIB, temperature_celsius: 61.2, power_watts: 512.25, ...fields });
  const bars = (fields: object) => useBars(worker({
    use: use({ gpus: [gpu(fields)] }), slot_devices: [{ index: 3, uuid: 'GPU-a', name: 'H100', memory_bytes: 80 * GIB }],
  })).slice(1);
  assert.deepEqual(bars({}), [
    { what: 'GPU 3', share: 0.97, text: '97.0 %', note: '61 °C, 512 W' },
    { what: 'GPU 3 memory', share: 0.25, text: '20.0 GiB of 80.0 GiB', note: '' },
  ]);
  assert.deepEqual(bars({ utilization: null, power_watts: null }), [
    { what: 'GPU 3 memory', share: 0.25, text: '20.0 GiB of 80.0 GiB', note: '61 °C' },
  ]);
  assert.equal(bars({ index: 4 })[1].text, '20.0 GiB', 'a card that is no slot of it');
  assert.equal(bars({ memory_bytes: 100 * GIB })[1].share, 1);
});
