// legoai-generate: goes on with the prompt on standard input. `lego generate` becomes this program, since `lego` links no torch;
// messages name its options.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/model/model_facts.h"
#include "core/process/build_version.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "proto/text.h"
#include "proto/yaml/yaml.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/generate/generate.h"
#include "worker/generate/sampler.h"
#include "worker/generate/source.h"
#include "worker/generate/utf8_stream.h"

ABSL_FLAG(int64_t, step, -1, "of a run's checkpoints; -1: the newest");
ABSL_FLAG(std::string, tokenizer, "", "'byte' or a file; empty: the one that the model was trained with");
ABSL_FLAG(double, temperature, 0, "0: the most likely token");
ABSL_FLAG(double, top_p, 1, "the share of probability that is drawn from");
ABSL_FLAG(int64_t, max_new_tokens, 200, "when to stop at the latest");
ABSL_FLAG(uint64_t, seed, 0, "of what is drawn");
ABSL_FLAG(std::string, dtype, "float32", "float32 or bfloat16: weights, activations and cache");
ABSL_FLAG(std::string, output, "text", "text: as it comes; json or yaml: all of it at the end");

namespace legoai::generate {
namespace {

constexpr int kFailed = 1, kWrongCall = 2, kInterrupted = 130;
constexpr size_t kMaxPromptBytes = size_t{64} << 20;

std::atomic<bool> interrupted = false;
void OnSignal(int) { interrupted = true; }

int Report(const absl::Status& status) {
  std::fprintf(stderr, "lego generate: %s\n", Printable(std::string(status.message()), Lines::kKeep).c_str());
  const bool wrong_input = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  return wrong_input && GetFieldViolation(status) ? kWrongCall : kFailed;
}

absl::StatusOr<std::string> ReadPrompt() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FileError("standard input", "cannot be read", errno);
    if (count == 0) break;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxPromptBytes) return FieldError("--prompt", "", "is longer than 64 MiB: shorten it");
  }
  if (text.empty()) return FieldError("--prompt", "", "is empty: give a text to go on with");
  return text;
}

// As a document of the training begins.
absl::StatusOr<std::vector<int32_t>> PromptIds(const data::Tokenizer& tokenizer, const std::string& text) {
  auto ids = tokenizer.Encode(text);
  if (!ids.ok()) {
    const v1::FieldViolation fault = GetFieldViolation(ids.status()).value_or(v1::FieldViolation());
    return FieldError("--prompt", fault.value(), fault.remedy());
  }
  if (const auto begin = tokenizer.BeginOfText()) ids->insert(ids->begin(), *begin);
  return ids;
}

// Models may have more ids than their tokenizer; such a one has no text, nor has one that ends a text.
std::string BytesOf(const Source& source, int32_t token) {
  if (std::find(source.end_ids.begin(), source.end_ids.end(), token) != source.end_ids.end()) return "";
  const auto bytes = source.tokenizer->Decode(std::vector<int32_t>{token});
  return bytes.ok() ? *bytes : "";
}

struct Text {
  std::vector<int32_t> prompt_ids, ids;
  std::string text;
  Finish finish = Finish::kTokens;
  double seconds = 0;
};

const char* FinishText(Finish finish) {
  switch (finish) {
    case Finish::kTokens: return "max_new_tokens";
    case Finish::kEndOfText: return "end_of_text";
    case Finish::kContext: return "context";
    case Finish::kInterrupted: return "interrupted";
  }
  return "";
}

std::string WhyItEnded(const Text& text, const v1::Model& model) {
  const std::string made = absl::StrFormat("%d tokens, %.1f a second", text.ids.size(),
                                           static_cast<double>(text.ids.size()) / std::max(text.seconds, 1e-9));
  switch (text.finish) {
    case Finish::kTokens: return absl::StrCat(made, "; stopped at --max-new-tokens");
    case Finish::kEndOfText: return absl::StrCat(made, "; the text is at its end");
    case Finish::kContext:
      return absl::StrCat(made, "; the model's context of ", model.max_position_embeddings(), " tokens is full");
    case Finish::kInterrupted: return absl::StrCat(made, "; interrupted");
  }
  return made;
}

std::string Valid(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Add(bytes);
  return text + stream.Finish();
}

Tree TreeOf(const Source& source, const std::string& prompt, const Sampling& sampling, const Text& text) {
  Tree tree;
  tree["model"] = source.what;
  if (!source.note.empty()) tree["note"] = source.note;
  tree["parameters"] = model::ParameterCount(source.model);
  tree["dtype"] = absl::GetFlag(FLAGS_dtype);
  tree["temperature"] = sampling.temperature;
  tree["top_p"] = sampling.top_p;
  tree["seed"] = sampling.seed;
  tree["prompt"] = Valid(prompt);
  tree["text"] = text.text;
  tree["prompt_tokens"] = text.prompt_ids;
  tree["tokens"] = text.ids;
  tree["finish"] = FinishText(text.finish);
  tree["seconds"] = text.seconds;
  return tree;
}

// `show` gets the text as it comes.
template <class Show>
absl::StatusOr<Text> Run(const Source& source, const std::string& prompt, const Sampling& sampling, const Show& show) {
  Text result;
  ASSIGN_OR_RETURN(result.prompt_ids, PromptIds(*source.tokenizer, prompt));
  const Limits limits = {absl::GetFlag(FLAGS_max_new_tokens), source.end_ids};
  ASSIGN_OR_RETURN(const auto positions,
                   PositionsFor(source.model, static_cast<int64_t>(result.prompt_ids.size()), limits.max_new_tokens));
  const at::ScalarType dtype = absl::GetFlag(FLAGS_dtype) == "bfloat16" ? at::kBFloat16 : at::kFloat;
  ASSIGN_OR_RETURN(auto model, LoadModel(source.model, source.weights, dtype, positions));
  // The first signal ends the text in order, the second at once.
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  Sampler sampler(sampling);
  Utf8Stream stream;
  const auto began = std::chrono::steady_clock::now();
  const auto add = [&](const std::string& piece) {
    result.text += piece;
    show(piece);
  };
  const auto finish = Generate(*model, result.prompt_ids, limits, sampler, [&](int32_t token) {
    result.ids.push_back(token);
    add(stream.Add(BytesOf(source, token)));
    return !interrupted;
  });
  if (!finish.ok()) return finish.status();
  add(stream.Finish());
  result.finish = *finish;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return result;
}

int Main(const std::string& path) {
  const Sampling sampling = {absl::GetFlag(FLAGS_temperature), absl::GetFlag(FLAGS_top_p), absl::GetFlag(FLAGS_seed)};
  if (absl::Status status = CheckSampling(sampling); !status.ok()) return Report(status);
  const auto prompt = ReadPrompt();
  if (!prompt.ok()) return Report(prompt.status());
  std::optional<int64_t> step;
  if (absl::GetFlag(FLAGS_step) >= 0) step = absl::GetFlag(FLAGS_step);
  const auto source = OpenSource({path, step, absl::GetFlag(FLAGS_tokenizer)});
  if (!source.ok()) return Report(source.status());
  const std::string output = absl::GetFlag(FLAGS_output);
  const bool streams = output == "text";
  if (streams) {
    std::fprintf(stderr, "%s: %.1f M parameters, %s\n", Printable(source->what).c_str(),
                 static_cast<double>(model::ParameterCount(source->model)) / 1e6, absl::GetFlag(FLAGS_dtype).c_str());
    if (!source->note.empty()) std::fprintf(stderr, "note: %s\n", Printable(source->note).c_str());
  }
  const auto text = Run(*source, *prompt, sampling, [&](const std::string& piece) {
    if (!streams) return;
    std::fputs(Printable(piece, Lines::kKeep).c_str(), stdout);
    std::fflush(stdout);
  });
  if (!text.ok()) return Report(text.status());
  if (streams) {
    std::fputs("\n", stdout);
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", WhyItEnded(*text, source->model).c_str());
  } else {
    const Tree tree = TreeOf(*source, *prompt, sampling, *text);
    std::fputs((output == "json" ? tree.dump(2) + "\n" : ToYaml(tree)).c_str(), stdout);
    std::fflush(stdout);
  }
  if (std::ferror(stdout)) return Report(absl::DataLossError("the text could not all be written to standard output"));
  return text->finish == Finish::kInterrupted ? kInterrupted : 0;
}

}  // namespace
}  // namespace legoai::generate

int main(int argc, char** argv) {
  legoai::comm::UseKnownCpuKernels();
  legoai::comm::KeepFreedMemory();
  legoai::launch::SetProgramHelp("legoai-generate RUN|FOLDER < PROMPT (started by lego; see lego generate --help)",
                                 "generate_main.cc");
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  if (words.size() != 2) {
    std::fprintf(stderr, "usage: legoai-generate RUN|FOLDER < PROMPT (started by lego; see lego generate --help)\n");
    return legoai::generate::kWrongCall;
  }
  return legoai::generate::Main(words[1]);
}
