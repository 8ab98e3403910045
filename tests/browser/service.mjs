// The whole service as real processes on ports of their own, in a folder of its own: server, one agent, and the command `lego`.
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

// Starts a program whose log is JSON lines on its standard error. `until(line)` gives something once the line that is waited for
// has come.
function start(program, args, until) {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  process.once('exit', () => child.kill('SIGKILL'));  // whatever has gone wrong, nothing stays behind
  const ended = new Promise((resolve) => child.once('exit', (code, signal) => resolve(code ?? signal)));
  const lines = [];
  const ready = new Promise((resolve, reject) => {
    createInterface({ input: child.stderr }).on('line', (line) => {
      lines.push(line);
      let parsed = null;
      try {
        parsed = JSON.parse(line);
      } catch {
        return; // a sanitizer or the loader speaks; it is shown when something fails
      }
      const found = until(parsed);
      if (found) resolve(found);
    });
    ended.then((code) => reject(new Error(`${program} ended with ${code}:\n${lines.slice(-5).join('\n')}`)));
  });
  ready.catch(() => {});
  return { child, ended, ready, lines };
}

async function end(program) {
  program.child.kill('SIGTERM');
  return program.ended;
}

// `programs`: paths of legoai-server, legoai-agent, legoai-trainer, lego-sim and lego.
export async function startService(programs, folder, web, slots) {
  mkdirSync(`${folder}/data`, { recursive: true });
  mkdirSync(`${folder}/runs`, { recursive: true });
  const server = start(
    programs.server,
    [`--data=${folder}/data`, `--web=${web}`, '--listen=127.0.0.1:0', '--http=127.0.0.1:0', `--sim=${programs.sim}`],
    (line) => line.http_port && line);
  const { grpc, http_port: port } = await server.ready;
  const agent = start(
    programs.agent,
    [`--server=${grpc}`, `--runs=${folder}/runs`, `--data_roots=${folder}`, '--name=node-1', `--slots=${slots}`, '--device=cpu',
      `--trainer=${programs.trainer}`],
    (line) => /^is connected with /.test(line.message) && line);
  await agent.ready;
  return {
    base: `http://localhost:${port}`,
    lego: async (...args) => (await promisify(execFile)(programs.lego, [...args, `--server=${grpc}`])).stdout,
    logs: () => [...server.lines.slice(-20), ...agent.lines.slice(-20)].join('\n'),
    end: async () => [await end(agent), await end(server)],
  };
}

// A job of the two-layer Llama on a text of a small alphabet. Gives the path of its JOB.toml.
export function writeTinyJob(folder, name, steps, metrics = '') {
  const model = path.join(folder, 'tiny');
  mkdirSync(model, { recursive: true });
  writeFileSync(path.join(model, 'config.json'), JSON.stringify({
    architectures: ['LlamaForCausalLM'],
    model_type: 'llama',
    vocab_size: 256,
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    max_position_embeddings: 64,
    rms_norm_eps: 1e-5,
    rope_theta: 10000.0,
    tie_word_embeddings: false,
    hidden_act: 'silu',
  }));
  const text = path.join(folder, 'text.txt');
  writeFileSync(text, 'the quick brown fox jumps over the lazy dog, and then it sleeps. '.repeat(400));
  const file = path.join(folder, `${name}.toml`);
  writeFileSync(file, `[model]
name = "${model}"
tokenizer_path = "byte"
[training]
dataset_path = "${text}"
global_batch_size = 4
seq_len = 32
steps = ${steps}
[metrics]
log_freq = 1
${metrics}
[validation]
enable = true
freq = 20
steps = 2
[checkpoint]
enable_checkpoint = true
interval = 50
[planning]
budget_seconds = 60
`);
  return file;
}
