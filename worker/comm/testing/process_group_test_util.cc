#include "worker/comm/testing/process_group_test_util.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "worker/comm/cpu_tensors.h"
#include "worker/comm/gloo_communicator.h"

namespace legoai::comm::testing {
namespace {

// A listening socket on a free port of the loopback interface.
int Listen(int* port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, 128) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("listening socket");
    std::abort();
  }
  *port = ntohs(address.sin_port);
  return fd;
}

void WriteAll(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n <= 0) _exit(3);
    done += n;
  }
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, n);
  return text;
}

[[noreturn]] void Child(pid_t parent, const mesh::Mesh& mesh, int64_t rank, int port, int listen_fd, int out,
                        const std::function<std::string(int64_t, Runtime&)>& body) {
  // A test that is killed leaves no ranks behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  UseKnownCpuKernels();
  KeepFreedMemory();
  at::set_num_threads(1);
  int code = 0;
  try {
    RendezvousOptions options;
    options.port = port;
    options.listen_fd = rank == 0 ? listen_fd : -1;
    options.rank = rank;
    options.world_size = mesh.world();
    options.timeout = std::chrono::seconds(60);
    CommunicatorFactory factory = NoCommunicator;
    if (mesh.world() > 1) {
      auto made = MakeGlooFactory(options);
      if (!made.ok()) throw std::runtime_error(made.status().ToString());
      factory = *std::move(made);
    }
    auto runtime = Runtime::Create(rank, mesh.Groups(rank), MakeThreadStreams(), factory);
    if (!runtime.ok()) throw std::runtime_error(runtime.status().ToString());
    RuntimeScope scope(runtime->get());
    const std::string result = body(rank, **runtime);
    if (absl::Status status = (*runtime)->Drain(); !status.ok()) throw std::runtime_error(status.ToString());
    // Leaving while others still read from this rank would look like a lost peer to them.
    if (mesh.world() > 1) {
      float done = 0;
      CommObserver::Call call;
      call.kind = "barrier";
      call.group = (*runtime)->GroupId(mesh::Dim::kWorld);
      (void)(*runtime)->Communicate(
          call, {}, [&](Communicator& c) { return c.AllReduce(&done, 1, c10::ScalarType::Float, ReduceOp::kSum); });
    }
    // Ranks are read one after the other: a long result waits here, when no rank waits for this one any more.
    WriteAll(out, result);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rank), e.what());
    code = 1;
  }
  if (::testing::Test::HasFailure()) code = 1;
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace

std::vector<std::string> RunRanks(const mesh::Mesh& mesh, const std::function<std::string(int64_t, Runtime&)>& body) {
  int port = 0;
  const int listen_fd = Listen(&port);
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  std::vector<int> outputs;
  std::fflush(nullptr);
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      Child(parent, mesh, rank, port, listen_fd, ends[1], body);
    }
    close(ends[1]);
    children.push_back(child);
    outputs.push_back(ends[0]);
  }
  close(listen_fd);
  std::vector<std::string> results;
  for (int fd : outputs) {
    results.push_back(ReadAll(fd));
    close(fd);
  }
  for (size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << rank << " failed; its message is above";
  }
  return results;
}

}  // namespace legoai::comm::testing
