// Hosts of their own on this machine: network namespaces on a bridge, from which each can be cut off. The bridge and the names
// lie in namespaces of this process and those that it starts: the machine's own network is left alone, and nothing is left
// behind. Needs root, and `ip` (iproute2). Thread-safe, but for the constructor and Add().
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace legoai::integration {

class HostNetwork {
 public:
  // Once in a process, before it has other threads: from then on its network is that of the hosts. Throws std::runtime_error, as
  // all functions do.
  HostNetwork();

  // `host`: at most 8 letters, digits and dashes. 200 hosts at most.
  void Add(const std::string& host);
  // At which hosts reach this process.
  static const char* address() { return "10.77.0.254"; }

  // Program and arguments that run `words` there.
  static std::vector<std::string> On(const std::string& host, std::vector<std::string> words);
  static std::vector<pid_t> Processes(const std::string& host);
  // To every process there, and to those that they start meanwhile.
  static void Signal(const std::string& host, int signal);

  // What is sent to it, and by it, is lost, and nobody is told.
  static void CutOff(const std::string& host);
  static void Join(const std::string& host);

 private:
  int hosts_ = 0;
};

}  // namespace legoai::integration
