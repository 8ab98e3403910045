import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventParser, readEvents, type ServerEvent } from './events';

const TEXT = ': keep alive\n\nevent: progress\ndata: {"a": 1}\n\nid: 7\nevent: result\ndata: {"b":\ndata: "ä"}\n\n';
const EVENTS: ServerEvent[] = [{ event: 'progress', data: '{"a": 1}' }, { event: 'result', data: '{"b":\n"ä"}' }];

test('events are whole however the text is cut', () => {
  for (let cut = 0; cut <= TEXT.length; ++cut) {
    const parser = new EventParser();
    assert.deepEqual([...parser.push(TEXT.slice(0, cut)), ...parser.push(TEXT.slice(cut))], EVENTS, `cut at ${cut}`);
  }
});

test('a response is read to its end, letters cut in two included', async () => {
  const bytes = new TextEncoder().encode(TEXT);
  const body = new ReadableStream({
    start(controller) {
      for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      controller.close();
    },
  });
  const taken: ServerEvent[] = [];
  await readEvents(new Response(body), (event) => taken.push(event));
  assert.deepEqual(taken, EVENTS);
});

test('what a handler throws ends the reading', async () => {
  await assert.rejects(readEvents(new Response(TEXT), () => { throw new Error('enough'); }), /enough/);
});
