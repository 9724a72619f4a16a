#!/usr/bin/env bash
# Build fedsim/analysis/vendor/echarts.min.js from the npm package, at the versions in package-lock.json.
# Needs Node.js and npm. The output depends on those versions alone, so a second build gives the same bytes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../fedsim/analysis/vendor
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

cp "$here"/{package.json,package-lock.json,entry.js} "$build"
cd "$build"
npm ci --ignore-scripts --no-audit --no-fund
modules=$build/node_modules
version=$(node -p "require('$modules/echarts/package.json').version")
zrender=$(node -p "require('$modules/zrender/package.json').version")
node_modules/.bin/esbuild entry.js --bundle --minify --format=iife --global-name=echarts --target=es2020 --charset=ascii \
  --define:process.env.NODE_ENV='"production"' --legal-comments=none \
  --banner:js="/*! Apache ECharts $version (Apache-2.0), with zrender $zrender (BSD-3-Clause) and tslib (0BSD). https://echarts.apache.org */" \
  --outfile="$target/echarts.min.js"
cp "$modules/echarts/LICENSE" "$target/LICENSE"
cp "$modules/echarts/NOTICE" "$target/NOTICE"
cp "$modules/zrender/LICENSE" "$target/LICENSE-zrender"
cp "$modules/tslib/LICENSE.txt" "$target/LICENSE-tslib"
wc -c "$target/echarts.min.js"
