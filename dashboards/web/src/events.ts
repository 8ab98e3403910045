// Server-sent events of a POST, which EventSource cannot make.

export interface ServerEvent {
  event: string;
  data: string;
}

// Takes text in pieces of any length and gives the events that are whole.
export class EventParser {
  private rest = '';

  push(text: string): ServerEvent[] {
    this.rest += text;
    const blocks = this.rest.split(/\r?\n\r?\n/);
    this.rest = blocks.pop() ?? '';
    return blocks.map(parseBlock).filter((event): event is ServerEvent => event !== null);
  }
}

function parseBlock(block: string): ServerEvent | null {
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    if (line.startsWith('event:')) event = line.slice(6).trim();
    if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  return data.length ? { event, data: data.join('\n') } : null; // a comment keeps the connection alive
}

// Reads `response` to its end; `take` is called for each event in turn.
export async function readEvents(response: Response, take: (event: ServerEvent) => void): Promise<void> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const event of parser.push(value)) take(event);
  }
}
