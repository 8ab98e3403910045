// Which recipes are simulated, and in which order. It follows from the request and from what whole rounds said, and from nothing
// else: not from the order in which answers come, not from how many simulators there are, not from the time. So the same request
// gives the same plan on every machine. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/legal.h"
#include "planner/plan_facts.h"

namespace legoai::planner {

// How many recipes are simulated, where more may fit: many times the places at which the best was found in jobs that were
// simulated to the end, and seconds on two cores (docs/benchmarks.md, "How many recipes a plan simulates").
inline constexpr int64_t kSimulations = 64;

// Recipes that are handed out before any of their answers counts. More than most machines have simulators, so that few wait for
// the last one of a round.
inline constexpr int64_t kRound = 16;

class Schedule {
 public:
  // `survivors` are the space's, fastest first by the closed forms, and outlive this. `everything`: all of them, in one round.
  // By MEMORY the smallest by the bound take the place of the fastest.
  Schedule(const std::vector<Survivor>& survivors, bool everything, v1::Objective objective = v1::STEP_TIME);

  // Indices of the recipes to simulate next; none: it is over. `fitting`: those of all rounds so far that fit, best first.
  //
  // The fastest by the estimate. As soon as some fit, the next rounds begin with one recipe for each choice that all of these
  // decide alike, so that the explanation has a number for it. As long as none fits, every other one is the smallest by the
  // memory bound, and it goes on beyond kSimulations: a slow recipe is better than none.
  std::vector<size_t> NextRound(const std::vector<size_t>& fitting);

  // How many it hands out in all, as far as that is known.
  int64_t total() const;

 private:
  void AddAlternatives(const std::vector<size_t>& fitting, int64_t room, std::vector<size_t>* round);
  std::optional<size_t> Alternative(const Choice& choice, const Survivor& best, bool smallest) const;
  void Take(size_t index, std::vector<size_t>* round);
  // The first of `order` from `at` on that is not taken yet.
  std::optional<size_t> NextOf(const std::vector<size_t>& order, size_t* at) const;

  const std::vector<Survivor>& survivors_;
  const int64_t most_;  // where some fit
  const bool everything_;
  const bool by_memory_;
  std::vector<size_t> best_, smallest_;  // all indices, by what is ranked by and by the memory bound
  size_t next_best_ = 0, next_smallest_ = 0;
  std::vector<bool> taken_;
  int64_t handed_out_ = 0;
  bool compared_ = false;  // alternatives to something that fits were looked for
  std::array<int, kChoiceCount> tries_{};
};

}  // namespace legoai::planner
