// A store that answers as it is told, one request after another, on a port of 127.0.0.1: for what a real one does seldom. Sets
// the environment so that clients find it.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

namespace legoai::objectstore {

class ScriptedStore {
 public:
  // Each answer is sent whole to one request, over a connection of its own; an empty one closes the connection. Afterwards
  // nothing listens any more.
  explicit ScriptedStore(std::vector<std::string> answers);
  ~ScriptedStore();
  ScriptedStore(const ScriptedStore&) = delete;
  ScriptedStore& operator=(const ScriptedStore&) = delete;

  // Heads and bodies of the requests so far.
  std::vector<std::string> requests() const;

 private:
  void Serve(const std::vector<std::string>& answers);

  int listener_ = -1;
  std::vector<std::string> requests_;  // one for each answer; the thread has done with those that are counted
  std::atomic<size_t> count_ = 0;
  std::thread thread_;
};

// "HTTP/1.1 STATUS X\r\n..." with this body.
std::string Answer(int status, const std::string& body);
// The same with an <Error>.
std::string Refusal(int status, const std::string& code, const std::string& message);

}  // namespace legoai::objectstore
