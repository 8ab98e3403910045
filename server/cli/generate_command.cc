#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/process/child_process.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "worker/generate/sampler.h"

namespace legoai::cli {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;

absl::StatusOr<generate::Sampling> ReadSampling(const Arguments& arguments) {
  generate::Sampling sampling;
  const auto temperature = arguments.Real("temperature", 0), top_p = arguments.Real("top-p", 0);
  const auto seed = arguments.Integer("seed", 0);
  for (const absl::Status& status : {temperature.status(), top_p.status(), seed.status()}) {
    if (!status.ok()) return status;
  }
  sampling.temperature = temperature->value_or(sampling.temperature);
  sampling.top_p = top_p->value_or(sampling.top_p);
  sampling.seed = static_cast<uint64_t>(seed->value_or(0));
  RETURN_IF_ERROR(generate::CheckSampling(sampling));
  return sampling;
}

// A descriptor from which the prompt is read: a text may be longer than a word of a command line, and `ps` shows those.
absl::StatusOr<int> OpenPrompt(const Arguments& arguments) {
  if (arguments.Has("prompt") == arguments.Has("prompt-file"))
    return FieldError("--prompt", "", "or --prompt-file is needed, one of the two: the text to go on with");
  const std::string path = arguments.Text("prompt-file");
  if (path == "-") return STDIN_FILENO;
  if (!path.empty()) return OpenRegularFile(path);
  if (arguments.Has("prompt-file")) return FieldError("--prompt-file", "", "is empty: name a file, or - for standard input");
  const std::string text = arguments.Text("prompt");
  if (text.empty()) return FieldError("--prompt", "", "is empty: give a text to go on with");
  const int fd = memfd_create("prompt", 0);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()) || lseek(fd, 0, SEEK_SET) != 0)
    return FileError("--prompt", "cannot be kept", errno);
  return fd;
}

absl::StatusOr<std::vector<std::string>> ReadCall(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto sampling, ReadSampling(arguments));
  ASSIGN_OR_RETURN(const auto most, arguments.Integer("max-new-tokens", 1, kMostTokens));
  ASSIGN_OR_RETURN(const auto step, arguments.Integer("step", 0));
  const std::string dtype = arguments.Text("dtype", "float32");
  if (dtype != "float32" && dtype != "bfloat16") return FieldError("--dtype", dtype, "must be float32 or bfloat16");
  const Format format = arguments.format();
  std::vector<std::string> words = {absl::StrFormat("--temperature=%.17g", sampling.temperature),
                                    absl::StrFormat("--top_p=%.17g", sampling.top_p),
                                    absl::StrCat("--seed=", sampling.seed),
                                    absl::StrCat("--dtype=", dtype),
                                    absl::StrCat("--tokenizer=", arguments.Text("tokenizer")),
                                    absl::StrCat("--output=", format == Format::kTable  ? "text"
                                                              : format == Format::kJson ? "json"
                                                                                        : "yaml")};
  if (most) words.push_back(absl::StrCat("--max_new_tokens=", *most));
  if (step) words.push_back(absl::StrCat("--step=", *step));
  words.push_back("--");
  words.push_back(arguments.positional()[0]);
  return words;
}

// This process becomes the program that is linked with torch: signals, output and exit code are its own.
absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(auto words, ReadCall(arguments));
  ASSIGN_OR_RETURN(const auto program, launch::FindProgram("legoai-generate", "worker/generate", "LEGOAI_GENERATE"));
  ASSIGN_OR_RETURN(const auto prompt, OpenPrompt(arguments));
  if (prompt != STDIN_FILENO && (dup2(prompt, STDIN_FILENO) < 0 || close(prompt) != 0))
    return FileError("--prompt", "cannot be handed on", errno);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return FileError(program, "cannot be started", errno);
}

}  // namespace

Command GenerateCommand() {
  CommandSpec spec;
  spec.name = "generate";
  spec.summary = "Goes on with a text, with a model that was trained here or a Hugging Face folder of a family that trains here.";
  spec.positional = "RUN|FOLDER";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"prompt", "TEXT", "the text to go on with"},
                  {"prompt-file", "FILE", "a file that holds it; - is standard input"},
                  {"max-new-tokens", "N", "stops after so many tokens; 200 if not given"},
                  {"temperature", "T", "0, the default, takes the most likely token each time; 1 draws as the model says"},
                  {"top-p", "P", "draws from the most likely tokens that together have this probability; 1 if not given"},
                  {"seed", "N", "of what is drawn: the same seed gives the same text; 0 if not given"},
                  {"step", "N", "the run's checkpoint of this step instead of the newest"},
                  {"tokenizer", "FILE", "instead of the model's own: a tiktoken file, a tokenizer.json, or 'byte'"},
                  {"dtype", "float32|bfloat16", "of weights, activations and cache; float32 if not given"}};
  spec.details =
      "RUN is a run directory (job.dump_folder), or the runs of a job: its exported Hugging Face folder is taken, or else its "
      "newest\n"
      "checkpoint. The text streams to standard output and ends at the model's end of text, at --max-new-tokens or where the "
      "model's\n"
      "context is full; standard error says which.";
  spec.example = "lego generate runs/example --prompt 'In the beginning'";
  return {spec, Run};
}

}  // namespace legoai::cli
