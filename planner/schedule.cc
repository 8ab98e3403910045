#include "planner/schedule.h"

#include <algorithm>
#include <numeric>

namespace legoai::planner {
namespace {

// For a choice whose alternatives do not fit: the fastest that should, then the smallest.
constexpr int kMostTries = 2;

}  // namespace

Schedule::Schedule(const std::vector<Survivor>& survivors, bool everything, v1::Objective objective)
    : survivors_(survivors),
      most_(everything ? static_cast<int64_t>(survivors.size()) : std::min(kSimulations, static_cast<int64_t>(survivors.size()))),
      everything_(everything),
      by_memory_(objective == v1::MEMORY),
      best_(survivors.size()),
      taken_(survivors.size(), false),
      slower_(survivors.size(), false) {
  std::iota(best_.begin(), best_.end(), 0);
  smallest_ = best_;
  std::stable_sort(smallest_.begin(), smallest_.end(),
                   [&](size_t a, size_t b) { return survivors[a].bound_bytes < survivors[b].bound_bytes; });
  if (by_memory_) best_ = smallest_;
}

int64_t Schedule::total() const { return std::max(most_ - slower_count_, handed_out_); }

void Schedule::Take(size_t index, std::vector<size_t>* round) {
  if (slower_[index]) slower_[index] = false, --slower_count_;
  taken_[index] = true;
  ++handed_out_;
  round->push_back(index);
}

std::optional<size_t> Schedule::NextOf(const std::vector<size_t>& order, size_t* at) const {
  while (*at < order.size() && (taken_[order[*at]] || slower_[order[*at]])) ++*at;
  if (*at == order.size()) return std::nullopt;
  return order[*at];
}

// The fastest by the estimate that decides a choice otherwise than `best` and needs no more memory than that one by the bound, so
// that it is likely to fit; if all of them need more, or if asked for, the smallest.
std::optional<size_t> Schedule::Alternative(const Choice& choice, const Survivor& best, bool smallest) const {
  std::optional<size_t> least;
  for (size_t i = 0; i < taken_.size(); ++i) {
    const Survivor& survivor = survivors_[i];
    if (taken_[i] || choice.value(survivor.recipe) == choice.value(best.recipe)) continue;
    if (!smallest && survivor.bound_bytes <= best.bound_bytes) return i;
    if (!least || survivor.bound_bytes < survivors_[*least].bound_bytes) least = i;
  }
  return least;
}

void Schedule::AddAlternatives(const std::vector<size_t>& fitting, int64_t room, std::vector<size_t>* round) {
  for (size_t c = 0; c < kChoiceCount && static_cast<int64_t>(round->size()) < room; ++c) {
    const Survivor& best = survivors_[fitting[0]];
    const bool alike = std::all_of(fitting.begin(), fitting.end(), [&](size_t i) {
      return kChoices[c].value(survivors_[i].recipe) == kChoices[c].value(best.recipe);
    });
    if (!alike || tries_[c] == kMostTries) continue;
    const auto other = Alternative(kChoices[c], best, /*smallest=*/by_memory_ || tries_[c] > 0);
    ++tries_[c];
    if (other) Take(*other, round);
  }
}

std::vector<size_t> Schedule::NextRound(const std::vector<size_t>& fitting, const std::function<bool(size_t)>& is_slower) {
  std::vector<size_t> round;
  const bool first = handed_out_ == 0, over = Decided() >= most_;
  // The first that fits came at the very end, or the end was near: it is still compared.
  const bool only_compare = over && !fitting.empty() && (!compared_ || handed_out_ < most_);
  int64_t room = everything_ ? most_ : kRound;
  if (only_compare) room = compared_ ? std::min<int64_t>(kChoiceCount, most_ - handed_out_) : kChoiceCount;
  if (!over) room = std::min(room, most_ - Decided());
  if (over && !fitting.empty() && !only_compare) room = 0;
  if (!fitting.empty()) {
    AddAlternatives(fitting, room, &round);
    compared_ = true;
  }
  while (!only_compare && static_cast<int64_t>(round.size()) < room && (over || Decided() < most_)) {
    const bool for_memory = !first && fitting.empty() && round.size() % 2 == 0;
    const auto next = for_memory ? NextOf(smallest_, &next_smallest_) : NextOf(best_, &next_best_);
    if (!next) break;
    if (!fitting.empty() && is_slower && is_slower(*next)) {
      slower_[*next] = true;
      ++slower_count_;
      continue;
    }
    Take(*next, &round);
  }
  return round;
}

}  // namespace legoai::planner
