#include "tests/gpu/gpu_test.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

namespace legoai::gpu {
namespace {

using c10::CachingAllocator::StatType;

constexpr char kRank[] = "LEGOAI_GPU_TESTS_RANK", kRanks[] = "LEGOAI_GPU_TESTS_RANKS", kPort[] = "LEGOAI_GPU_TESTS_PORT",
               kSocket[] = "LEGOAI_GPU_TESTS_SOCKET", kTell[] = "LEGOAI_GPU_TESTS_TELL";

c10::DeviceAllocator* Allocator() { return c10::getDeviceAllocator(at::kCUDA); }

int Number(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " is not set: RunSelf starts this test");
  return std::atoi(value);
}

int Listen(int* port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || bind(fd, any, size) != 0 || listen(fd, 128) != 0 || getsockname(fd, any, &size) != 0) {
    throw std::runtime_error("no socket to listen on");
  }
  *port = ntohs(address.sin_port);
  return fd;
}

std::string TellPath(int rank) { return ::testing::TempDir() + "/told." + std::to_string(getpid()) + "." + std::to_string(rank); }

// argv and environment of a rank, made before the fork.
struct Program {
  std::vector<std::string> texts;
  std::vector<char*> Pointers() {
    std::vector<char*> pointers;
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }
};

Program Environment(int rank, int ranks, int port, int socket) {
  Program environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    // What bazel and gtest say to the whole program: its shard, and where its report goes.
    bool foreign = false;
    for (const char* prefix : {"TEST_SHARD", "TEST_TOTAL_SHARDS", "GTEST_", "XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE"}) {
      foreign = foreign || text.rfind(prefix, 0) == 0;
    }
    if (!foreign) environment.texts.push_back(text);
  }
  const auto add = [&](const char* name, const std::string& value) {
    environment.texts.push_back(std::string(name) + "=" + value);
  };
  add(kRank, std::to_string(rank));
  add(kRanks, std::to_string(ranks));
  add(kPort, std::to_string(port));
  add(kSocket, std::to_string(socket));
  add(kTell, TellPath(rank));
  return environment;
}

pid_t Start(const std::string& name, int rank, int ranks, int port, int socket) {
  Program arguments{{"/proc/self/exe", "--gtest_filter=" + name, "--gtest_also_run_disabled_tests"}};
  Program environment = Environment(rank, ranks, port, socket);
  std::vector<char*> argv = arguments.Pointers(), envp = environment.Pointers();
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  execve("/proc/self/exe", argv.data(), envp.data());
  _exit(127);
}

int Wait(pid_t child, std::chrono::steady_clock::time_point until) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      ADD_FAILURE() << "process " << child << " did not end in its time";
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

bool CudaKernelsAreKnown() {
  (void)comm::LoadCudaPlugin(kPlugin);
  return c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "").hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

void GpuTest::SetUp() {
  const auto plugin = comm::LoadCudaPlugin(kPlugin);
  if (!plugin.ok()) GTEST_SKIP() << std::string(plugin.status().message());
  plugin_ = *plugin;
  ASSERT_TRUE(plugin_->select_device(0).ok());
}

DeviceBytes BytesNow() {
  const auto stats = Allocator()->getDeviceStats(0);
  const auto all = static_cast<size_t>(StatType::AGGREGATE);
  return {stats.requested_bytes[all].current, stats.allocated_bytes[all].current, stats.requested_bytes[all].peak};
}

void ResetPeak() { Allocator()->resetPeakStats(0); }
void Synchronize() { at::detail::getCUDAHooks().deviceSynchronize(0); }

std::unique_ptr<comm::Runtime> RuntimeOfOne(const comm::CudaPlugin& plugin) {
  const std::vector<mesh::Group> groups = mesh::Mesh().Groups(0);
  auto runtime = comm::Runtime::Create(0, groups, plugin.make_streams(), comm::NoCommunicator);
  if (!runtime.ok()) throw std::runtime_error(runtime.status().ToString());
  return *std::move(runtime);
}

void OneRankTest::SetUp() {
  GpuTest::SetUp();
  if (plugin_ == nullptr) return;
  runtime_ = RuntimeOfOne(*plugin_);
  scope_ = std::make_unique<comm::RuntimeScope>(runtime_.get());
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return kInfinite;
  if (a.numel() == 0) return 0;
  const at::Tensor x = a.detach().cpu().to(at::kDouble), y = b.detach().cpu().to(at::kDouble);
  if (!at::isfinite(x).all().item<bool>()) return kInfinite;
  const double largest = y.abs().max().item<double>(), apart = (x - y).abs().max().item<double>();
  return apart == 0 ? 0 : apart / largest;
}

std::vector<RankOutcome> RunSelf(const std::string& name, int ranks, int time_limit_seconds) {
  int port = 0;
  const int listening = Listen(&port);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) children.push_back(Start(name, rank, ranks, port, rank == 0 ? listening : -1));
  close(listening);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(time_limit_seconds);
  std::vector<RankOutcome> outcomes(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    outcomes[rank].exit_code = Wait(children[rank], until);
    std::stringstream text;
    text << std::ifstream(TellPath(rank)).rdbuf();
    outcomes[rank].told = text.str();
    unlink(TellPath(rank).c_str());
  }
  return outcomes;
}

int RankOfSelf() { return Number(kRank); }
int RanksOfSelf() { return Number(kRanks); }

comm::RendezvousOptions RendezvousOfSelf() {
  comm::RendezvousOptions options;
  options.rank = RankOfSelf();
  options.world_size = RanksOfSelf();
  options.port = Number(kPort);
  options.listen_fd = Number(kSocket);
  return options;
}

c10::Device DeviceOfSelf(const comm::CudaPlugin& plugin) {
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(plugin.devices < RanksOfSelf() ? 0 : RankOfSelf()));
}

const comm::CudaPlugin& PluginOfSelf() {
  const comm::CudaPlugin* plugin = integration::Must(comm::LoadCudaPlugin(kPlugin));
  if (plugin->devices < RanksOfSelf()) {  // before either library looks
    setenv("NCCL_HOSTID", ("rank-" + std::to_string(RankOfSelf())).c_str(), 1);
    setenv("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1", 1);
  }
  integration::Must(plugin->select_device(DeviceOfSelf(*plugin).index()));
  return *plugin;
}

void Tell(const std::string& text) { std::ofstream(std::getenv(kTell), std::ios::app) << text; }

void FillDeviceInputs(train::StepInputs& inputs, const integration::Case& test_case, const parallel::ResolvedRecipe& resolved,
                      int64_t rank, int64_t step) {
  const auto on_host = [](const at::Tensor& tensor) { return at::empty_like(tensor, at::TensorOptions().device(at::kCPU)); };
  train::StepInputs host{on_host(inputs.tokens), on_host(inputs.targets), on_host(inputs.samples), on_host(inputs.rng),
                         on_host(inputs.learning_rate)};
  integration::FillInputs(host, test_case, resolved, rank, step);
  inputs.tokens.copy_(host.tokens);
  inputs.targets.copy_(host.targets);
  inputs.samples.copy_(host.samples);
  inputs.rng.copy_(host.rng);
  inputs.learning_rate.copy_(host.learning_rate);
}

integration::Case CaseOfOne(const std::string& name, const v1::Model& model, v1::DType param, bool checkpointed) {
  integration::Case test_case = integration::Reference(integration::ParityCases().front());
  test_case.name = name;
  test_case.model = model;
  test_case.recipe.mutable_training()->set_mixed_precision_param(param);
  test_case.recipe.mutable_activation_checkpoint()->set_mode(checkpointed ? v1::AC_FULL : v1::AC_NONE);
  return test_case;
}

}  // namespace legoai::gpu
