#include "tests/bench/host_network.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace legoai::integration {
namespace {

namespace fs = std::filesystem;

constexpr int kMostHosts = 200;

void Ip(const std::string& words) {
  const std::string command = "ip " + words;
  if (std::system(command.c_str()) != 0) throw std::runtime_error(command + " failed: this needs root and iproute2");
}

void Must(int result, const char* what) {
  if (result != 0) throw std::runtime_error(absl::StrCat(what, ": ", std::strerror(errno), "; this needs root"));
}

std::string PortOf(const std::string& host) { return "port-" + host; }

}  // namespace

HostNetwork::HostNetwork() {
  Must(unshare(CLONE_NEWNET | CLONE_NEWNS), "a network of its own");
  // `ip netns` keeps its names below /run.
  Must(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "mounts of its own");
  Must(mount("none", "/run", "tmpfs", 0, nullptr), "names of its own");
  Ip("link set lo up");
  Ip("link add bridge type bridge");
  Ip(absl::StrCat("address add ", address(), "/24 dev bridge"));
  Ip("link set bridge up");
}

void HostNetwork::Add(const std::string& host) {
  if (++hosts_ > kMostHosts) throw std::runtime_error("too many hosts");
  const std::string on = absl::StrCat("-n ", host, " ");
  Ip("netns add " + host);
  Ip(on + "link set lo up");
  Ip(absl::StrCat(on, "link add eth0 type veth peer name ", PortOf(host), " netns ", getpid()));
  Ip(absl::StrCat(on, "address add 10.77.0.", hosts_, "/24 dev eth0"));
  Ip(on + "link set eth0 up");
  Ip(absl::StrCat("link set ", PortOf(host), " up"));
  Join(host);
}

std::vector<std::string> HostNetwork::On(const std::string& host, std::vector<std::string> words) {
  const std::vector<std::string> before = {"/usr/bin/env", "ip", "netns", "exec", host};
  words.insert(words.begin(), before.begin(), before.end());
  return words;
}

std::vector<pid_t> HostNetwork::Processes(const std::string& host) {
  std::vector<pid_t> found;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc", gone)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && fs::equivalent("/run/netns/" + host, entry.path() / "ns/net", gone)) found.push_back(pid);
  }
  return found;
}

void HostNetwork::Signal(const std::string& host, int signal) {
  std::set<pid_t> told;
  for (bool again = true; again;) {
    again = false;
    for (const pid_t pid : Processes(host)) {
      if (told.insert(pid).second) again |= kill(pid, signal) == 0;
    }
  }
}

void HostNetwork::CutOff(const std::string& host) { Ip(absl::StrCat("link set ", PortOf(host), " nomaster")); }

void HostNetwork::Join(const std::string& host) { Ip(absl::StrCat("link set ", PortOf(host), " master bridge")); }

}  // namespace legoai::integration
