// Which recipes are simulated, and in which order. This depends only on the request and on the results of whole rounds, not on
// the order of answers, the number of simulators or the time. So the same request gives the same plan on every machine. Not
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "planner/legal.h"
#include "planner/plan_facts.h"

namespace legoai::planner {

// How many recipes are simulated if more may fit: far beyond the rank at which the best was found in exhaustively simulated jobs,
// and seconds on two cores (docs/benchmarks.md, "How many recipes a plan simulates").
inline constexpr int64_t kSimulations = 64;

// Recipes handed out before any of their answers counts. More than most machines have simulators, so that few idle at the end of
// a round.
inline constexpr int64_t kRound = 16;

class Schedule {
 public:
  // `survivors` are the space's, fastest first by the closed forms, and outlive this. `everything`: all of them, in one round.
  // For MEMORY the smallest by the bound replace the fastest.
  Schedule(const std::vector<Survivor>& survivors, bool everything, v1::Objective objective = v1::STEP_TIME);

  // Indices of the recipes to simulate next; none: done. `fitting`: those of all rounds so far that fit, best first. `is_slower`:
  // recipes that are known to be of no interest beside these. They take the places that they would have had, so no others are
  // simulated for them; only as alternatives are they simulated all the same.
  //
  // Takes the fastest by the estimate. Once some fit, the next rounds begin with an alternative for each choice that all of these
  // decide alike, so that the explanation has a number for it. While none fits, every other one is the smallest by the memory
  // bound, and it continues beyond kSimulations: a slow recipe is better than none.
  std::vector<size_t> NextRound(const std::vector<size_t>& fitting, const std::function<bool(size_t)>& is_slower = {});

  // How many it hands out in total, as far as is known.
  int64_t total() const;

  // How many it left out because they are slower.
  int64_t slower() const { return slower_count_; }

 private:
  void AddAlternatives(const std::vector<size_t>& fitting, int64_t room, std::vector<size_t>* round);
  std::optional<size_t> Alternative(const Choice& choice, const Survivor& best, bool smallest) const;
  void Take(size_t index, std::vector<size_t>* round);
  // The first untaken entry of `order` from `at` on.
  std::optional<size_t> NextOf(const std::vector<size_t>& order, size_t* at) const;
  // Of those that are simulated, and those that need not be.
  int64_t Decided() const { return handed_out_ + slower_count_; }

  const std::vector<Survivor>& survivors_;
  const int64_t most_;  // if some fit
  const bool everything_;
  const bool by_memory_;
  std::vector<size_t> best_, smallest_;  // all indices, by the objective and by the memory bound
  size_t next_best_ = 0, next_smallest_ = 0;
  std::vector<bool> taken_, slower_;
  int64_t handed_out_ = 0, slower_count_ = 0;
  bool compared_ = false;  // alternatives to a fitting recipe were tried
  std::array<int, kChoiceCount> tries_{};
};

}  // namespace legoai::planner
