// What befalls the disk of the runs: a bit of a committed checkpoint flips, a file of one ends early, the disk is full for a
// while. Only what the service must survive: of each job a whole, older checkpoint is left beside the one that is harmed. One
// thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace legoai::scenarios {

class DiskHarm {
 public:
  // `runs`: of all agents. Nothing is owned.
  DiskHarm(std::string runs, std::mt19937* random) : runs_(std::move(runs)), random_(random) {}

  // Gives `runs` a small file system of its own, which this thread and the processes that it starts see; before any is started.
  // The reason where this machine does not let us: then the disk is never filled.
  std::optional<std::string> Mount();
  void Unmount();

  // Flips a bit of one of the newest checkpoints, or cuts one of its files short. False: there is none that may be harmed.
  bool SpoilCheckpoint();
  // Not a byte more can be written, until MakeRoom(). False: it is full already, or was not mounted.
  bool Fill();
  void MakeRoom();
  bool full() const { return full_; }

  // All that was ever harmed: "RUNS/JOB/epoch-E/checkpoints/step-N", and when: microseconds UTC.
  const std::map<std::string, int64_t>& spoiled() const { return spoiled_; }

 private:
  std::vector<std::string> Candidates() const;

  const std::string runs_;
  std::mt19937* const random_;
  std::map<std::string, int64_t> spoiled_;
  bool mounted_ = false, full_ = false;
};

}  // namespace legoai::scenarios
