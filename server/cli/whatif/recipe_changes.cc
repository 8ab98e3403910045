#include "server/cli/whatif/recipe_changes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/recipe/recipe.h"
#include "proto/json/reflect.h"
#include "proto/status.h"

namespace legoai::cli {
namespace {

// More keys than these are not changed together in search of a legal recipe: their sets are too many.
constexpr size_t kLargestSearched = 4;

Tree TreeOf(v1::Recipe recipe) {
  parallel::FillDefaults(&recipe);
  return ToTree(recipe);
}

Tree::json_pointer Place(const std::string& key) { return Tree::json_pointer("/" + absl::StrReplaceAll(key, {{".", "/"}})); }

std::string ValueText(const Tree& recipe, const std::string& key) {
  const Tree value = recipe.value(Place(key), Tree());
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void AddLeaves(const Tree& tree, const std::string& prefix, std::vector<std::string>* keys) {
  for (const auto& [name, value] : tree.items()) {
    const std::string key = prefix.empty() ? name : absl::StrCat(prefix, ".", name);
    if (value.is_object()) {
      AddLeaves(value, key, keys);
    } else if (std::find(keys->begin(), keys->end(), key) == keys->end()) {
      keys->push_back(key);
    }
  }
}

// The next set of this many of `count` indices in lexicographic order; false after the last one.
bool NextSet(size_t count, std::vector<size_t>* set) {
  for (size_t i = set->size(); i-- > 0;) {
    if ((*set)[i] + (set->size() - i) >= count) continue;
    std::iota(set->begin() + static_cast<ptrdiff_t>(i), set->end(), (*set)[i] + 1);
    return true;
  }
  return false;
}

std::optional<std::vector<size_t>> SmallestWith(size_t key, size_t keys,
                                                const std::function<bool(const std::vector<size_t>&)>& legal) {
  for (size_t size = 1; size <= std::min(keys, kLargestSearched); ++size) {
    std::vector<size_t> set(size);
    std::iota(set.begin(), set.end(), 0);
    do {
      const bool has = std::find(set.begin(), set.end(), key) != set.end();
      if (has && legal(set)) return set;
    } while (NextSet(keys, &set));
  }
  return std::nullopt;
}

}  // namespace

std::vector<KeyChange> ChangedKeys(const v1::Recipe& a, const v1::Recipe& b) {
  const Tree first = TreeOf(a), second = TreeOf(b);
  std::vector<std::string> keys;
  AddLeaves(first, "", &keys);
  AddLeaves(second, "", &keys);
  std::vector<KeyChange> changes;
  for (const std::string& key : keys) {
    KeyChange change{key, ValueText(first, key), ValueText(second, key)};
    if (change.a != change.b) changes.push_back(std::move(change));
  }
  return changes;
}

absl::StatusOr<v1::Recipe> WithKeysOf(const v1::Recipe& a, const v1::Recipe& b, const std::vector<std::string>& keys) {
  Tree tree = TreeOf(a);
  const Tree other = TreeOf(b);
  for (const std::string& key : keys) tree[Place(key)] = other.value(Place(key), Tree());
  v1::Recipe recipe;
  RETURN_IF_ERROR(MergeTree(tree, &recipe));
  return recipe;
}

std::vector<std::vector<size_t>> SmallestLegalChanges(size_t keys, const std::function<bool(const std::vector<size_t>&)>& legal) {
  std::vector<size_t> all(keys);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<size_t>> changes;
  for (size_t key = 0; key < keys; ++key) {
    std::vector<size_t> set = SmallestWith(key, keys, legal).value_or(all);
    if (std::find(changes.begin(), changes.end(), set) == changes.end()) changes.push_back(std::move(set));
  }
  return changes;
}

}  // namespace legoai::cli
