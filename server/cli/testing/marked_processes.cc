#include "server/cli/testing/marked_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace legoai::cli::testing {
namespace {

namespace fs = std::filesystem;

constexpr char kMark[] = "LEGOAI_TEST_RUN";

[[noreturn]] void Exec(std::vector<std::string> words, const std::string& out, const std::string& err, int64_t file_limit_bytes) {
  dup2(open(out.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0644), STDOUT_FILENO);
  dup2(open(err.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0644), STDERR_FILENO);
  // As `ulimit -f` does it: what becomes of the signal is the program's own affair.
  const rlimit limit = {static_cast<rlim_t>(file_limit_bytes), RLIM_INFINITY};
  if (file_limit_bytes > 0) setrlimit(RLIMIT_FSIZE, &limit);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(99);
}

// N of ".../logs/rank-N.log", where a trainer's output goes.
int RankOf(const fs::path& process) {
  std::error_code gone;
  const std::string log = fs::read_symlink(process / "fd/1", gone).filename().string();
  int rank = -1;
  return sscanf(log.c_str(), "rank-%d.log", &rank) == 1 ? rank : -1;
}

}  // namespace

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

bool Ended(pid_t pid) {
  siginfo_t info = {};
  return waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

MarkedProcesses::MarkedProcesses(fs::path folder, std::string mark) : folder_(std::move(folder)), mark_(std::move(mark)) {
  fs::create_directories(folder_);
  setenv(kMark, mark_.c_str(), 1);
  setenv("HOME", folder_.c_str(), 1);
  for (const char* name : {"XDG_CACHE_HOME", "LEGOAI_HOST_DEVICE", "LEGOAI_SIM", "LEGOAI_TRAINER"}) unsetenv(name);
  Write(folder_ / "config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
      "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
      "hidden_act": "silu"})");
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox " + std::to_string(i * i) + " jumps over the lazy dog\n";
  Write(folder_ / "text.txt", text);
  Write(folder_ / "recipe.toml", Recipe(""));
}

std::string MarkedProcesses::Recipe(const std::string& training) const {
  return "[job]\ndump_folder = \"" + Path("run") + "\"\n[model]\nname = \"" + Path("config.json") + "\"\n[training]\n" +
         "dataset_path = \"" + Path("text.txt") + "\"\nlocal_batch_size = 2\nglobal_batch_size = 4\nseq_len = 16\nsteps = 6\n" +
         training + "[lr_scheduler]\nwarmup_steps = 2\n[metrics]\nlog_freq = 1\n[checkpoint]\nenable_checkpoint = true\n";
}

pid_t MarkedProcesses::Start(std::vector<std::string> words, int64_t file_limit_bytes) const {
  const pid_t pid = fork();
  if (pid == 0) Exec(std::move(words), OutputOf(getpid(), "stdout"), OutputOf(getpid(), "stderr"), file_limit_bytes);
  return pid;
}

std::vector<Process> MarkedProcesses::All() const {
  const std::string mark = std::string(kMark) + "=" + mark_ + '\0';
  std::vector<Process> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const pid_t pid = atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    // Not there for processes that have ended, nor for those of others.
    if (ReadAll(entry.path() / "environ").find(mark) == std::string::npos) continue;
    found.push_back({pid, fs::read_symlink(entry.path() / "exe", error).filename().string(), RankOf(entry.path())});
  }
  return found;
}

}  // namespace legoai::cli::testing
