// What proto/rpc.h promises, over real connections: through a relay that can fall silent, as a host without power does.
#include "proto/rpc.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "server/rpc/testing/grpc_client.h"
#include "server/rpc/testing/test_service.h"

namespace legoai::server {
namespace {

using testing::WatchCall;

constexpr Keepalive kQuick = {.interval = absl::Seconds(1), .timeout = absl::Seconds(1)};
constexpr Keepalive kPatient = {.interval = absl::Seconds(1), .timeout = absl::Seconds(30)};  // for what is to stay open
constexpr int kPingBytes = 9 + 8;  // header and payload of an HTTP/2 frame

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// Passes one connection on to a port of this host.
class Relay {
 public:
  explicit Relay(int target) : target_(target), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~Relay() {
    ending_ = true;
    thread_.join();
    close(listener_);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void FallSilent() { silent_ = true; }
  int64_t from_client() const { return from_client_; }

 private:
  // False at the end of either side.
  bool Pass(int from, int to, std::atomic<int64_t>* count) {
    char bytes[4096];
    const ssize_t got = read(from, bytes, sizeof(bytes));
    if (got <= 0) return false;
    *count += got;
    return silent_ || send(to, bytes, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
  }
  bool Wait(pollfd* files, int count) {
    while (!ending_) {
      if (poll(files, static_cast<nfds_t>(count), 20) > 0) return true;
    }
    return false;
  }
  void Run() {
    pollfd waiting = {listener_, POLLIN, 0};
    if (!Wait(&waiting, 1)) return;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(target_);
    bool open = connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    pollfd both[] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    while (open && Wait(both, 2)) {
      if (both[0].revents != 0) open = Pass(client, server, &from_client_);
      if (open && both[1].revents != 0) open = Pass(server, client, &from_server_);
    }
    close(client);
    close(server);
  }

  const int target_;
  const int listener_;
  int port_ = 0;
  std::atomic<bool> ending_ = false, silent_ = false;
  std::atomic<int64_t> from_client_ = 0, from_server_ = 0;
  std::thread thread_;
};

class KeepaliveTest : public ::testing::Test {
 protected:
  void Start(const GrpcLimits& limits, const Keepalive& of_server) {
    const std::string address = service_.StartServer(limits, of_server);
    relay_ = std::make_unique<Relay>(std::stoi(address.substr(address.rfind(':') + 1)));
  }
  std::unique_ptr<v1::ControlPlane::Stub> Dial(const std::string& address, const Keepalive& keepalive) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    SetKeepalive(keepalive, &arguments);
    return v1::ControlPlane::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }

  testing::TestService service_;
  std::unique_ptr<Relay> relay_;
};

TEST_F(KeepaliveTest, AClientNoticesAServerThatIsGoneWithoutAWord) {
  Start({}, {});
  const auto stub = Dial(relay_->address(), kQuick);
  WatchCall watch(stub.get(), service_.Create().name());
  ASSERT_TRUE(watch.Read());
  relay_->FallSilent();
  EXPECT_FALSE(watch.Read());
  EXPECT_TRUE(absl::IsUnavailable(watch.Finish())) << "not by the limit of the call";
}

TEST_F(KeepaliveTest, AWatchOfWhichNothingIsHeardStaysOpenWhilePingsAreAnswered) {
  Start({}, kPatient);
  const auto stub = Dial(relay_->address(), kPatient);
  const std::string job = service_.Create().name();
  WatchCall watch(stub.get(), job);
  ASSERT_TRUE(watch.Read());
  const int64_t enough = relay_->from_client() + 6 * kPingBytes;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (relay_->from_client() < enough && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_GE(relay_->from_client(), enough) << "no pings";
  service_.Move(job, {v1::PLANNING});
  ASSERT_TRUE(watch.Read()) << watch.Finish();
  EXPECT_EQ(watch.response().job().state(), v1::PLANNING);
  watch.Leave();
}

TEST_F(KeepaliveTest, AServerForgetsAClientThatIsGoneWithoutAWord) {
  Start({.watches = 1}, kQuick);
  const auto gone = Dial(relay_->address(), {}), next = Dial(service_.address(), {});
  const std::string job = service_.Create().name();
  WatchCall watch(gone.get(), job);
  ASSERT_TRUE(watch.Read());
  relay_->FallSilent();
  bool let_in = false;
  for (int i = 0; i < 1200 && !let_in; ++i) {
    WatchCall other(next.get(), job);
    let_in = other.Read();
    other.Leave();
    if (!let_in) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(let_in);
  watch.Leave();
}

}  // namespace
}  // namespace legoai::server
