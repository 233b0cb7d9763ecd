#!/usr/bin/env bash
# Checks the subjects of commits: under 72 characters, and a blank line before a body.
#
#     scripts/check_commits.sh [BASE]      the commits after BASE, which is where the rule began if it is not given
set -euo pipefail
cd "$(dirname "$0")/.."

# Earlier subjects stay as they are.
began=60ec9c0b2c0a
export LC_ALL=C.UTF-8
git rev-parse --git-dir >/dev/null 2>&1 || { echo "no git history here, so nothing to check" && exit 0; }
base=${1:-$began}
if [ $# = 0 ] && ! git rev-parse --quiet --verify "$base^{commit}" >/dev/null; then
  # A shallow clone, or a history that was written anew: the last commit is there in any case.
  base=$(git rev-parse --quiet --verify HEAD~1 || true)
fi

bad=0
for commit in $(git rev-list "${base:+$base..}HEAD"); do
  subject=$(git show --no-patch --format=%B "$commit" | sed -n 1p)
  second=$(git show --no-patch --format=%B "$commit" | sed -n 2p)
  length=$(printf %s "$subject" | wc -m)
  if [ "$length" -ge 72 ]; then
    echo "${commit:0:9} has a subject of $length characters, expected under 72: $subject"
    bad=1
  elif [ -n "$second" ]; then
    echo "${commit:0:9} has no blank line after its subject: $subject"
    bad=1
  fi
done
exit $bad
