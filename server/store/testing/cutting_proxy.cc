#include "server/store/testing/cutting_proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace legoai::store {
namespace {

sockaddr_un Address(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

bool SendAll(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

// The message that runs the prepared statement "commit": behind the empty name of a portal. Where it is prepared, the message's
// length, which is not 0, stands before it.
bool Commits(std::string_view bytes) {
  constexpr std::string_view kBind("\0commit\0", 8);
  return bytes.find(kBind) != std::string_view::npos;
}

}  // namespace

CuttingProxy::CuttingProxy(std::string folder, std::string server_folder) : server_path_(server_folder + "/.s.PGSQL.5432") {
  const sockaddr_un address = Address(folder + "/.s.PGSQL.5432");
  listening_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listening_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 || listen(listening_, 64) != 0) abort();
  accepting_ = std::thread([this] { Accept(); });
}

CuttingProxy::~CuttingProxy() {
  end_ = true;
  shutdown(listening_, SHUT_RDWR);
  accepting_.join();
  close(listening_);
  CutAll();
  std::vector<std::thread> relays;
  {
    const MutexLock lock(mutex_);
    relays.swap(relays_);
  }
  for (std::thread& relay : relays) relay.join();
}

void CuttingProxy::CutAll() {
  const MutexLock lock(mutex_);
  for (const Pair& pair : pairs_) shutdown(pair.client, SHUT_RDWR), shutdown(pair.server, SHUT_RDWR);
}

void CuttingProxy::Accept() {
  while (!end_) {
    const int client = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_un address = Address(server_path_);
    if (refuse_ || connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(client), close(server);
      continue;
    }
    const MutexLock lock(mutex_);
    pairs_.push_back({client, server});
    relays_.emplace_back([this, pair = Pair{client, server}] { Relay(pair); });
  }
}

void CuttingProxy::Relay(Pair pair) {
  while (true) {
    pollfd both[] = {{pair.client, POLLIN, 0}, {pair.server, POLLIN, 0}};
    if (poll(both, 2, -1) < 0) break;
    if (both[0].revents != 0 && !Forward(pair, /*to_server=*/true)) break;
    if (both[1].revents != 0 && !Forward(pair, /*to_server=*/false)) break;
  }
  const MutexLock lock(mutex_);
  std::erase_if(pairs_, [&](const Pair& one) { return one.client == pair.client; });
  close(pair.client), close(pair.server);
}

// False: the connection ends.
bool CuttingProxy::Forward(Pair pair, bool to_server) {
  char bytes[1 << 16];
  const ssize_t size = read(to_server ? pair.client : pair.server, bytes, sizeof(bytes));
  if (size <= 0) return false;
  const std::string_view piece(bytes, static_cast<size_t>(size));
  const Cut cut = to_server && Commits(piece) ? next_.exchange(Cut::kNone) : Cut::kNone;
  if (cut == Cut::kBeforeCommit) return false;
  if (!SendAll(to_server ? pair.server : pair.client, piece)) return false;
  if (cut == Cut::kNone) return true;
  (void)!read(pair.server, bytes, sizeof(bytes));  // it has answered
  return false;
}

}  // namespace legoai::store
